#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
An exhaustive model of how waiting clients are answered (docs/design.md, "The queue"): the row waits, and a client is a
subscriber of its key at one permitd. Two permitd, one unit, two keys, three clients: two of them are copies of one call at
two permitd. Every batch commits first and is delivered later; in between, the other permitd, the clients and the faults go
on. Every state that these steps can reach is visited.

  LOOK    a batch looks at the key of subscribers: it decides the row, claims a grant, ends the wait of those whose time is
          over, or enters the row again if it is gone;
  LEAVE   the last subscriber has left: the place is given up;
  notice  (key, granted | refused | moved): a grant of any batch, or the answer of a look; deliver hands it to the subscribers
          of the key. (permitd calls the subscribers of a key that is released: they look, and are told by that.)

Judgements, of each state or of those in which nothing but clients and time can move:

  capacity  one key holds at most (P1);
  order     a batch grants no key while an earlier one waits and is asked for (P20);
  early     a client whose time is not over is refused only if its key has ended (P17);
  told      a subscriber waits only while its row waits at its permitd, and no unit is free for it (P17, P21);
  ends      a place that is asked for has a subscriber, and what is held was told to a client or is still to be claimed, or
            its client has left or was told that the outcome is unknown (P22).

Then it leaves out one rule at a time: each time a judgement must fail, or the rule is not needed.

    tests/model/subscribers.py [--faults N]     prints "N passed, N failed"
"""
import argparse
import sys
from collections import namedtuple

RULE = dict(
    mail=True,             # a grant to a key that waits at another permitd is mailed to it
    mail_waits=True,       # mail for a key without a subscriber stays until the batches that run now have been delivered
    mail_looks=True,       # a key with mail is looked at again if a batch looks at it already
    ends_by_write=True,    # a wait ends by a write: the place is given up in the transaction that refuses
    moved=True,            # a key that is asked for at another permitd moves there, and the first permitd gets mail
    last_copy=True,        # the place is kept while another subscriber, or an acquire of the batch, waits for the key
    everybody=True,        # a notice goes to all subscribers of the key, whoever asked
    lost_looks=True,       # after a reply that was lost the keys of its notices are looked at
    enters_again=True,     # a look whose row is gone enters it again
    parked_leaves=True,    # a client that leaves while its batch runs gives up the place that the batch has made
    net=True,              # once a second each permitd looks at the keys of its subscribers that seem to fit
    claims=True,           # a look claims a grant that another permitd has made for its key
)

# row: None, ("W", server, place), ("H", server that has to claim it, or None), "ended"
# clients: "away", ("asks", server), ("again", server): its acquire may have entered the key, and runs again,
# ("waits", server), ("over", server): its time is over, and the answers.
# looks: per server and key: "", "look", "leave", and with a "+" behind: once more after the batch.
# flying: per server: None, or (operations, deliveries, committed)
State = namedtuple("State", "rows before mail clients looks flying alive dead faults next")
SERVERS = (0, 1)
ASKS = [(("asks", server), ("again", server)) for server in SERVERS]
KEYS = (1, 2)                       # key 0 holds the unit in the beginning
CLIENTS = ((1, 0), (1, 1), (2, 0))  # key and permitd
START = State(rows=(("H", None), None, None), before=None, mail=frozenset(), clients=("away",) * 3,
              looks=(("", "", ""), ("", "", "")), flying=(None, None), alive=(True, True), dead=(False, False),
              faults=0, next=1)


class Failure(Exception):
    pass


def put(values, index, value):
    return values[:index] + (value,) + values[index + 1:]


def subscribers(state, server, key):
    return [c for c, (k, _) in enumerate(CLIENTS) if k == key and state.clients[c] in (("waits", server), ("over", server))]


def in_flight(state, server, operation):
    return state.flying[server] is not None and operation in state.flying[server][0]


def with_look(state, server, key, what="look"):
    """A reason to look at a key: now, or after the batch that looks at it."""
    now = state.looks[server][key]
    runs = in_flight(state, server, ("look", key)) or in_flight(state, server, ("leave", key))
    if runs:
        return state._replace(looks=put(state.looks, server, put(state.looks[server], key, "+")))
    if now:
        return state
    return state._replace(looks=put(state.looks, server, put(state.looks[server], key, what)))


def asked(state, row):
    return row is not None and row[0] == "W" and row[1] is not None and not state.dead[row[1]]


def walk(rule, state, rows, mail, server, notices):
    """Grants the unit to the first key that is asked for."""
    if any(row and row[0] == "H" for row in rows):
        return rows, mail
    waiting = sorted((rows[key][2], key) for key in KEYS if asked(state, rows[key]))
    if not waiting:
        return rows, mail
    key = waiting[0][1]
    at = rows[key][1]
    if at == server and (subscribers(state, server, key) or ("parks", key) in notices):
        rows = put(rows, key, ("H", None))
        notices.append(("granted", key))
    elif at != server:
        rows = put(rows, key, ("H", at))
        mail = mail | {(at, key)} if rule["mail"] else mail
    return rows, mail


def plan(rule, state, server, operations):
    """The rows after a batch, and what is to be delivered."""
    rows, mail, notices, number = state.rows, state.mail, [], state.next
    acquires = [c for what, c in operations if what == "acquire"]
    for what, key in operations:
        if what == "release" and rows[key] is not None and rows[key] != "ended":
            if rows[key][0] == "W" and rows[key][1] not in (None, server):
                mail = mail | {(rows[key][1], key)}
            rows = put(rows, key, "ended")
            if subscribers(state, server, key):
                notices.append(("refused", key))
        if what not in ("look", "leave"):
            continue
        mail = mail - {(server, key)}
        row, clients = rows[key], subscribers(state, server, key)
        waits = [c for c in clients if state.clients[c][0] == "waits"]
        others = [c for c in acquires if CLIENTS[c][0] == key]
        if what == "leave" or not clients:
            if row and row[0] == "W" and row[1] == server and not (rule["last_copy"] and (others or clients)):
                rows = put(rows, key, ("W", None, row[2]))
        elif row is None and rule["enters_again"] and waits:
            rows, number = put(rows, key, ("W", server, number)), number + 1
        elif row is None:
            notices.append(("refused", key))
        elif row == "ended":
            notices.append(("refused", key))
        elif row[0] == "H" and row[1] is not None and rule["claims"]:
            rows = put(rows, key, ("H", None))
            notices.append(("granted", key))
        elif row[0] == "H" and row[1] is None:
            notices.append(("granted", key))
        elif row[0] == "W" and row[1] not in (None, server) and not state.dead[row[1]]:
            notices.append(("moved", key))
        elif row[0] == "W" and row[1] is None:
            notices.append(("moved", key))
    for c in acquires:
        key = CLIENTS[c][0]
        row = rows[key]
        if row == "ended":
            notices.append(("answer", c, "refused"))
        elif row and row[0] == "H":
            rows = put(rows, key, ("H", None))
            notices.append(("answer", c, "granted"))
        else:
            if row and row[1] not in (None, server) and rule["moved"] and not state.dead[row[1]]:
                mail = mail | {(row[1], key)}
            place, number = (row[2], number) if row else (number, number + 1)
            rows = put(rows, key, ("W", server, place))
            notices += [("park", c), ("parks", key)]
    rows, mail = walk(rule, state, rows, mail, server, notices)
    for what, key in operations:  # the wait of those whose time is over ends, unless the walk has granted the key
        row = rows[key]
        if what != "look" or not row or row[0] != "W" or row[1] != server:
            continue
        clients = subscribers(state, server, key)
        waits = [c for c in clients if state.clients[c][0] == "waits"]
        parks = ("parks", key) in notices
        if not waits and not (rule["last_copy"] and parks) and rule["ends_by_write"]:
            rows = put(rows, key, ("W", None, row[2]))
            rows, mail = walk(rule, state, rows, mail, server, notices)
        notices.append(("over", key))
    return rows, mail, tuple(n for n in notices if n[0] != "parks"), number


def judge_order(state, rows):
    for key in KEYS:
        granted = rows[key] and rows[key][0] == "H" and not (state.rows[key] and state.rows[key][0] == "H")
        if granted and any(other != key and asked(state, rows[other]) and state.rows[key] and state.rows[key][0] == "W"
                           and rows[other][2] < state.rows[key][2] for other in KEYS):
            raise Failure("order")
    if sum(1 for row in rows if row and row[0] == "H") > 1:
        raise Failure("capacity")


def run_batch(rule, state, server, operations, fault):
    """Plans and commits; the delivery comes later. fault: "" , "lost" (the reply), "failed" (nothing is written)."""
    rows, mail, notices, number = plan(rule, state, server, operations)
    judge_order(state, rows)
    if fault != "failed":
        number = 1 + max(row[2] if row and row[0] == "W" else 0 for row in state.rows + rows)
        state = state._replace(before=state.rows, rows=rows, mail=mail, next=number)
    flying = (operations, notices, fault)
    looks = state.looks[server]
    for what, key in operations:
        if what in ("look", "leave"):
            looks = put(looks, key, "")
    return state._replace(looks=put(state.looks, server, looks), flying=put(state.flying, server, flying),
                          faults=state.faults + bool(fault))


def answer(state, client, what):
    return state._replace(clients=put(state.clients, client, what))


def deliver(rule, state, server):
    operations, notices, fault = state.flying[server]
    again = [key for what, key in operations if what in ("look", "leave") and state.looks[server][key] == "+"]
    state = state._replace(flying=put(state.flying, server, None))
    for key in again:
        state = state._replace(looks=put(state.looks, server, put(state.looks[server], key, "")))
        state = with_look(state, server, key) if rule["mail_looks"] else state
    if fault:  # acquires run again; keys that may have been decided are looked at
        for what, key in operations:
            if what in ("look", "leave"):
                state = with_look(state, server, key, what)
            elif what == "acquire" and state.clients[key] == ("asks", server):
                state = answer(state, key, ("again", server))
            elif what == "acquire" and state.clients[key] == "left":
                state = with_look(state, server, CLIENTS[key][0], "leave")
        for notice in notices:
            if rule["lost_looks"] and notice[0] == "granted":
                state = with_look(state, server, notice[1])
        return state
    for notice in notices:
        if notice[0] == "answer":
            if state.clients[notice[1]] in ASKS[server]:
                state = answer(state, notice[1], notice[2])
        elif notice[0] == "park":
            client, key = notice[1], CLIENTS[notice[1]][0]
            if state.clients[client] in ASKS[server]:
                state = answer(state, client, ("waits", server))
            elif rule["parked_leaves"] and not subscribers(state, server, key):
                state = with_look(state, server, key, "leave")
        else:
            what, key = notice
            told = {"granted": "granted", "refused": "refused", "moved": "unknown", "over": "refused"}[what]
            clients = subscribers(state, server, key)
            if what == "over":
                clients = [c for c in clients if state.clients[c][0] == "over"]
            if not rule["everybody"]:
                clients = clients if ("look", key) in operations else []
            for client in clients:
                if told == "refused" and state.clients[client][0] == "waits" and state.rows[key] != "ended":
                    raise Failure("early")
                state = answer(state, client, told)
    return state


def internal_steps(rule, state):
    """The steps that permitd takes by itself at once."""
    for server in SERVERS:
        if not state.alive[server]:
            continue
        if state.flying[server]:
            yield deliver(rule, state, server)
            continue
        pending = [("acquire", c) for c in range(len(CLIENTS)) if state.clients[c] in ASKS[server]]
        pending += [(state.looks[server][key], key) for key in KEYS if state.looks[server][key]]
        for chosen in [tuple(pending)] + [(p,) for p in pending if len(pending) > 1]:
            if chosen:
                yield run_batch(rule, state, server, chosen, "")
        for at, key in state.mail:
            if at != server or state.looks[server][key]:
                continue
            if subscribers(state, server, key):
                yield with_look(state, server, key)
            elif not any(p[0] == "acquire" and CLIENTS[p[1]][0] == key for p in pending):
                yield state._replace(mail=state.mail - {(at, key)})
    if not rule["mail_waits"]:  # mail is dropped while a batch is still to be delivered
        for at, key in state.mail:
            if state.alive[at] and state.flying[at] and not subscribers(state, at, key):
                yield state._replace(mail=state.mail - {(at, key)})


def slow_steps(rule, state):
    """The steps of time, when nothing else moves: the net, deaths, ends of kept places and of unclaimed grants."""
    free = not any(row and row[0] == "H" for row in state.rows)
    for server in SERVERS:
        if not state.alive[server] and not state.dead[server]:
            yield state._replace(dead=put(state.dead, server, True))
        for key in KEYS if state.alive[server] and rule["net"] else ():
            if free and subscribers(state, server, key) and not state.looks[server][key]:
                yield with_look(state, server, key)
    for key in KEYS:
        row = state.rows[key]
        if row and row[0] == "W" and not asked(state, row):
            yield state._replace(rows=put(state.rows, key, None))
        if row and row[0] == "H" and row[1] is not None:
            yield state._replace(rows=put(state.rows, key, "ended"))


def outer_steps(rule, state, max_faults):
    """The steps of clients, holders and faults."""
    for c, (key, server) in enumerate(CLIENTS):
        now = state.clients[c]
        if now == "away" and state.alive[server]:
            yield answer(state, c, ("asks", server))
        if now == ("waits", server):
            yield with_look(answer(state, c, ("over", server)), server, key)
        if now in (("waits", server), ("over", server)):
            left = answer(state, c, "left")
            yield left if subscribers(left, server, key) else with_look(left, server, key, "leave")
        if now == ("asks", server):
            yield answer(state, c, "left")
        if now == ("again", server):
            left = answer(state, c, "left")
            yield left if subscribers(left, server, key) else with_look(left, server, key, "leave")
    for key, row in enumerate(state.rows):
        if row == ("H", None) and (key == 0 or any(state.clients[c] in ("granted", "unknown", "left", "lost")
                                                   for c in range(len(CLIENTS)) if CLIENTS[c][0] == key)):
            for server in SERVERS:
                if state.alive[server] and not state.flying[server]:
                    yield run_batch(rule, state, server, (("release", key),), "")
                    break
    if state.faults >= max_faults:
        return
    for server in SERVERS:
        if state.alive[server] and not state.flying[server]:
            pending = [("acquire", c) for c in range(len(CLIENTS)) if state.clients[c] in ASKS[server]]
            pending += [(state.looks[server][key], key) for key in KEYS if state.looks[server][key]]
            if pending:
                yield run_batch(rule, state, server, tuple(pending), "lost")
                yield run_batch(rule, state, server, tuple(pending), "failed")
        if state.alive[server]:
            clients = tuple("lost" if type(c) is tuple and c[1] == server else c for c in state.clients)
            yield state._replace(alive=put(state.alive, server, False), clients=clients, faults=state.faults + 1,
                                 flying=put(state.flying, server, None), looks=put(state.looks, server, ("",) * 3))
    # A failover loses the last commit. (If that is the end of a wait, the place comes back, and ends with its time.)
    told = any(type(now) is not tuple and now not in ("away", "lost") for now in state.clients)
    if state.before is not None and not any(state.flying) and not told:
        after = state._replace(rows=state.before, before=None, faults=state.faults + 1)
        for server in SERVERS:
            for key in KEYS:
                if after.alive[server] and subscribers(after, server, key):
                    after = with_look(after, server, key)
        yield after


def judge_rest(state):
    """Judges a state in which only clients, holders and faults can move."""
    free = not any(row and row[0] == "H" for row in state.rows)
    for server in SERVERS:
        for key in KEYS:
            row = state.rows[key]
            if not subscribers(state, server, key):
                continue
            if not row or row[0] != "W" or row[1] != server or free:
                raise Failure("told")
            if any(state.clients[c][0] == "over" for c in subscribers(state, server, key)):
                raise Failure("told")
    for key in KEYS:
        row = state.rows[key]
        ends = {state.clients[c] for c in range(len(CLIENTS)) if CLIENTS[c][0] == key}
        if asked(state, row) and state.alive[row[1]] and not subscribers(state, row[1], key):
            raise Failure("ends")
        if row == ("H", None) and not ends & {"granted", "unknown", "left", "lost"}:
            raise Failure("ends")


def unread_left_out(state, max_faults):
    """
    The state without what no later step reads: of the states that differ only in that, one is visited. Unread are
      - the rows before the last commit, if no failover can follow: a client was told, or there may be no more faults;
      - the mail of a permitd that has ended;
      - of a batch to be delivered: its operations but the looks, if it was committed, and else its notices but the grants;
      - how a client ended, but for what the judgement `ends` and a failed batch ask of it;
      - of places all but their order.
    """
    rows, before, mail, clients, looks, flying, alive, dead, faults, _ = state
    if any(flying) or not all(alive):
        flying = tuple(f and part_read(*f) for f in flying)
        mail = frozenset(m for m in mail if alive[m[0]])
    if faults == max_faults or any(type(now) is not tuple and now not in ("away", "lost") for now in clients):
        before = None
    clients = clients_as_read(clients, flying, faults == max_faults)
    places = sorted({row[2] for row in rows + (before or ()) if row and row[0] == "W"})
    if places and places[-1] > len(places):
        rank = {place: at + 1 for at, place in enumerate(places)}
        rows, before = (each and tuple(("W", row[1], rank[row[2]]) if row and row[0] == "W" else row for row in each)
                        for each in (rows, before))
    return State(rows, before, mail, clients, looks, flying, alive, dead, faults, len(places) + 1)


def part_read(operations, notices, fault):
    if fault:
        return operations, tuple(n for n in notices if n[0] == "granted"), "fault"
    return tuple(o for o in operations if o[0] in ("look", "leave")), notices, ""


def clients_as_read(clients, flying, last_fault):
    """
    A client that was told that it is unknown, or that left, is as one that was granted; so is one that was refused beside
    such a client of its key, and one whose permitd has ended, if there may be no more faults. A failed batch asks for those
    that left.
    """
    failed = {c for f in flying if f and f[2] for what, c in f[0] if what == "acquire"}
    as_granted = ("unknown", "left", "lost") if last_fault else ("unknown", "left")
    clients = tuple("granted" if now in as_granted and not (now == "left" and c in failed) else now
                    for c, now in enumerate(clients))
    reached = {CLIENTS[c][0] for c, now in enumerate(clients) if now in ("granted", "left", "lost")}
    return tuple("granted" if now == "refused" and CLIENTS[c][0] in reached else now for c, now in enumerate(clients))


def visit(rule, max_faults, states_max):
    """Returns the number of states, and the judgements that fail. States are remembered by 64-bit hashes."""
    seen, stack, failed = {hash(START)}, [START], set()
    while stack and len(seen) < states_max:
        state = stack.pop()
        steps = []
        try:
            steps = list(internal_steps(rule, state))
            if not steps:
                steps = list(slow_steps(rule, state))
            if not steps:
                judge_rest(state)
            steps += outer_steps(rule, state, max_faults)
        except Failure as failure:
            failed.add(str(failure))
            if rule is not RULE:
                break
        for step in steps:
            step = unread_left_out(step, max_faults)
            number = hash(step)
            if number not in seen:
                seen.add(number)
                stack.append(step)
    if len(seen) >= states_max:
        failed.add("not all states were visited")
    return len(seen), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1)
    parser.add_argument("--states", type=int, default=5000000, help="stop after so many")
    options = parser.parse_args()
    passed = failed = 0
    for left_out in [None] + list(RULE):
        rule = RULE if left_out is None else dict(RULE, **{left_out: False})
        count, found = visit(rule, options.faults, options.states)
        good = bool(found) == bool(left_out)
        passed, failed = passed + good, failed + (not good)
        print("%s %s: %d states, %s" % ("ok  " if good else "FAIL", "the rule" if left_out is None else "without " + left_out,
                                        count, ", ".join(sorted(found)) or "no judgement fails"), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
