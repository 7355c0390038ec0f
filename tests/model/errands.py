#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
An exhaustive model of errands: a procedure in a shop's own transaction marks a hold as sold, released or refunded; a
batch of permitd settles the mark later. Two permitd and two shops use one hold, `key`; another key takes and gives back a
unit of a semaphore that both want, which has two. Every state that these steps can reach is visited:

  shop        begins (its snapshot sees the hold), calls up to two procedures, goes back to a savepoint, commits, or rolls
              back (as after a lost connection);
  long way    a batch locks its semaphores, then the rows that it may write (SKIP LOCKED), reads plainly, writes and
              commits. Shops go on in between. A batch may be given up after each step;
  short path  a batch is planned on a copy of the rows and sent as one packet: versions, NOWAIT on the row, guards, COMMIT;
  faults      a permitd is killed; a failover to a copy of the database that lacks the last commit.

The batches are confirm, renew, release and replay of the hold over HTTP, acquire and end of the other key, an acquire
that is refused, expiry, retention, and the one that settles what a poll of errands has found. Each may come again at any
time, at each permitd.

Judgements, of each state, step or answer:

  order    an order is there if and only if its sale is; a sale over HTTP stays one until it is refunded;
  expired  a sold hold is never ended by expiry;
  freed    a hold is not released for a transaction that rolled back, or was lost;
  twice    no unit has two holders, or a holder and a buyer;
  pair     a row has a mark if and only if it has an errand row;
  held     the bit in `held` and `in_use` agree with the rows;
  told     an answer is true of the rows when its batch commits, or of those that the same batch has read;
  waits    no batch waits for a row that a shop's transaction has locked;
  hidden   a hold that is due ends, although a shop's transaction has locked another one that is due, too;
  stuck    when no transaction is open, the next poll settles what is marked;
  alarm    the audit, which compares marks and errand rows without locks, finds no fault.

Then it leaves out one rule at a time, or two that replace each other: a judgement must fail. SCENES has a short history
for each rule: the judgement that it names fails without the rule, and none fails with it.

    tests/model/errands.py [--night] [--without RULE,...]     prints "N passed, N failed"

--night: up to three faults, and all judgements that fail without each rule. --without: prints the shortest history to
each judgement that fails without these rules.
"""
import argparse
import sys
from collections import deque, namedtuple

RULE = dict(
    # The procedures
    in_transaction=True,    # a call outside a transaction is refused
    no_serializable=True,   # so is one in SERIALIZABLE: it locks what it reads
    plain_lookup=True,      # the key is read plainly, then the row is locked by its primary key: no gap is locked
    looks_again=True,       # the locked row is looked at again: it may have ended after the snapshot
    own_row_only=True,      # nothing but the own row and the errand row is written
    due_untouched=True,     # due_at is left to the batch that settles
    errand_row=True,        # an errand row is inserted with the mark
    transactional=True,     # ... into a table that rolls back with the shop
    release_marks=True,     # a release or a refund marks the row, too
    confirm_sees=True,      # a confirm of a row that is to be released is refused
    release_spares=True,    # permit_release of a sale is refused
    # Settling
    polls=True,             # errands are polled
    either_polls=True,      # ... by each permitd
    settles_first=True,     # a batch settles a row before it decides anything about it
    locks_all=True,         # settling locks all semaphores of the request
    settle_raises=True,     # ... raises the version of a semaphore
    raises_all=True,        # ... of all semaphores of the request
    clears_mark=True,       # settling clears the mark
    clears_row=True,        # ... and deletes the errand row
    finds_row=True,         # ... the one that is there when the row is locked, not the one that the poll has seen
    audit_once=True,        # the audit reads marks and errand rows in one statement
    installed_late=True,    # the procedures are installed when no permitd runs that does not know marks
    # The long way
    long_lock=True,         # a batch locks the rows that it may write
    skip_locked=True,       # ... with SKIP LOCKED
    locks_first=True,       # ... before it reads them
    long_guard=True,        # its writes are guarded by state and errand
    only_locked=True,       # a row that was skipped is not written, whatever the reads show
    skipped_is_there=True,  # a row that was skipped exists: the operation is tried again, or answered in_transaction
    past_skipped=True,      # the read of due holders goes on past skipped ones
    retention_skips=True,   # retention deletes with SKIP LOCKED
    # The short path
    nowait=True,            # the row is locked with NOWAIT
    guard_errand=True,      # each write of a row is guarded by errand
    guard_state=True,       # ... and by state
    from_rows=True,         # a refusal for a key that exists is decided on the long way: a mark raises no version
    unmarked_only=True,     # a row with a mark is not copied
    one_life=True,          # copies belong to one life of the database
)

# Without these no judgement fails, as others prove the same: each of the first two the other's, the versions guard_state's,
# guard_errand unmarked_only's.
SPARE = [("locks_first",), ("long_guard", "guard_state", "unmarked_only")]
PAIRS = [("locks_first", "long_guard")]  # a judgement fails without both

# A row of permit_request. state: "held", "expired", "released". confirmed: confirmed_at is set. mark: column `errand`
# (1 confirmed, 2 to be released). due: due_at is set, and the bit of the row stands there in `held`, else at "never".
Key = namedtuple("Key", "state confirmed mark due")
# The database. errand: 0, or the bucket of the errand row (one is enough with finds_row); 2 more if that row says
# "release" (without release_marks). bits: of the hold in `held`: 1 at due_at, 2 at "never". used: in_use. other: the unit
# of the other key, or None; unit 1 is that of the hold. late: the deadlines have passed. promised: "", an "order" of a
# shop, a "sale" over HTTP, or "back": given back.
Rows = namedtuple("Rows", "key errand bits used other late promised")
# A transaction. written: its key, errand and promised, or None. calls: how many are left. gap: it has locked a gap.
Shop = namedtuple("Shop", "locked written calls gap")
# A batch. locked: it has locked the row of the hold. writes: it may write that row. view: the rows that it has read.
Batch = namedtuple("Batch", "server what locked writes view")
Plan = namedtuple("Plan", "rows answer settles changes")  # settles: a mark. changes: more than that
# What a permitd has copied. key: "?" if the row of the hold is not copied. ahead: by how much its version is above that
# of the database (after a failover).
Copy = namedtuple("Copy", "ahead key used other")
# before: the rows before the last commit, and whether that has raised the version. polled: the errand row that each
# permitd has seen (without finds_row). audit: whether it has seen a mark (without audit_once).
State = namedtuple("State", "rows before shops batch copies polled audit alive faults")

SERVERS = (0, 1)
NAMES = "AB"
HTTP = ("confirm", "renew", "release", "replay")  # operations on the hold
HOLD = Key("held", False, 0, True)


class Failure(Exception):
    pass


def start(shops):
    return State(rows=Rows(HOLD, 0, 1, 1, None, False, ""), before=None, shops=(None,) * shops, batch=None,
                 copies=(Copy(0, HOLD, 1, None), None), polled=(0, 0), audit=None, alive=(True, True), faults=0)


def put(values, index, value):
    return values[:index] + (value,) + values[index + 1:]


def bit(key):
    return 0 if key is None or key.state != "held" else 1 if key.due else 2


def is_sold(key):
    """By the row as it stands, with its mark."""
    return bit(key) != 0 and key.confirmed and not key.mark & 2


def locked_by_shop(state):
    return any(shop and shop.locked for shop in state.shops)


def locked_by_batch(state):
    return state.batch is not None and state.batch.locked


def commit(state, rows, raised=False, all_versions=True):
    """Writes rows. What raises a version makes the copies of others stale: all of them, or what they know of the hold."""
    copies = state.copies
    if raised and all_versions:
        copies = tuple(c and (c._replace(ahead=c.ahead - 1) if c.ahead else None) for c in copies)
    elif raised:
        copies = tuple(c and c._replace(key="?") for c in copies)
    return state._replace(rows=rows, before=(state.rows, raised and all_versions), copies=copies)


# ---- the shops ----

def call(rule, rows, shop, what, bucket):
    """The transaction after it has locked the row and called a procedure."""
    key, errand, promised = shop.written or (rows.key, rows.errand, rows.promised)
    refused = shop._replace(locked=key is not None, calls=shop.calls - 1)
    if what == "hold" or rule["looks_again"] and not bit(key):
        return refused
    mark = key.mark if key else 0
    if what == "confirm":
        if mark & 2 and rule["confirm_sees"]:
            return refused
        promised = "order"
        if not (key and key.confirmed):
            key = key and key._replace(confirmed=True, mark=mark | 1, due=key.due and rule["due_untouched"])
            errand = errand or bucket
    else:
        sold = is_sold(key)
        if what == "release" and sold and rule["release_spares"]:
            return refused
        promised = promised if what == "release" and sold else "back"
        key = key and key._replace(mark=mark | 2) if rule["release_marks"] else key
        errand = errand or (bucket if rule["release_marks"] else bucket + 2)
    if not rule["errand_row"]:
        errand = 0
    return Shop(key is not None, (key, errand, promised), shop.calls - 1, shop.gap)


def shop_steps(rule, state):
    rows = state.rows
    for index, shop in enumerate(state.shops):
        name = "shop%d " % (index + 1)

        def becomes(now):
            return state._replace(shops=put(state.shops, index, now))

        if shop is None:
            if bit(rows.key):  # it is refused from the plain read otherwise
                gap = not rule["plain_lookup"] or not rule["no_serializable"]
                yield name + "begins", becomes(Shop(False, None, 2, gap))
                if not rule["in_transaction"] and not rows.key.confirmed and not locked_by_batch(state):
                    marked = rows.key._replace(confirmed=True, mark=1)
                    yield name + "confirms outside", commit(state, rows._replace(key=marked))
            continue
        if shop.calls and (shop.locked or not locked_by_shop(state) and not locked_by_batch(state)):  # it waits otherwise
            for what in ("confirm", "release", "refund", "hold"):
                yield name + what, becomes(call(rule, rows, shop, what, 1 if rule["finds_row"] else index + 1))
        if shop.written:
            key, errand, promised = shop.written
            yield name + "commits", commit(becomes(None), rows._replace(key=key, errand=errand, promised=promised))
            yield name + "savepoint", becomes(shop._replace(written=None))
        if shop.written and not rule["transactional"]:
            yield name + "rolls back", commit(becomes(None), rows._replace(errand=shop.written[1]))
        else:
            yield name + "rolls back", becomes(None)


# ---- plans ----

def settle(rule, key, errand):
    mark = 0 if rule["clears_mark"] else key.mark
    if key.mark & 2 or errand > 2:
        return Key("released", False, mark, False)
    return key._replace(mark=mark, due=False)


def plan(rule, what, view, writes):
    """Decides a batch on the rows that it knows. `writes`: it may write the row of the hold."""
    key, errand, bits, used, other, late, promised = view
    settles = writes and bit(key) != 0 and (key.mark > 0 or errand > 2) and (what == "settle" or rule["settles_first"])
    if settles:
        key = settle(rule, key, errand)
        errand = 0 if rule["clears_row"] else errand
    before = (key, other)
    held = bit(key) != 0
    sold = held and key.confirmed and (not key.due or not key.mark)  # without settles_first a mark says nothing
    ends = writes and held and not sold and key.due and late
    answer = ""
    if what in HTTP and not held:
        answer = "ended"
    elif what == "confirm":
        answer = "sold"
        promised = promised if sold or promised == "order" else "sale"
        key = key._replace(confirmed=True, due=False)
    elif what == "renew":
        answer = "sold" if sold else "held"
        late = late and sold
    elif what == "release" and sold:
        answer = "confirmed"
    elif what == "release":
        answer = "ended"
        promised = promised or "back"
        key = Key("released", False, key.mark, False)
    elif what == "replay":
        answer = "granted"
    elif what in ("expire", "acquire") and ends:
        key = Key("expired", False, key.mark, False)
    if what == "acquire":
        other = 2 if bit(key) else 1
    elif what == "end" or what == "expire" and not writes:
        other = None
    used += bool(bit(key)) - bool(bit(view.key)) + bool(other) - bool(view.other)
    bits ^= bit(view.key) ^ bit(key)
    changes = (key, other) != before or what == "renew" and answer == "held"
    return Plan(Rows(key, errand, bits, used, other, late, promised), answer, settles, changes)


def is_true(answer, key):
    held = bit(key) != 0
    return {"": True, "sold": is_sold(key), "confirmed": is_sold(key), "ended": not held or key.mark & 2 != 0,
            "granted": held and not key.mark & 2, "held": held and not key.confirmed and not key.mark}[answer]


def touches(planned, batch):
    """It writes the row of the hold, be it only the counter of replays."""
    return planned.rows.key != batch.view.key or planned.answer not in ("", "confirmed")


def write(rule, state, batch, planned, short):
    """The state after the writes and COMMIT of a batch on either path; None if a guard stops it."""
    now, view, made = state.rows, batch.view, planned.rows
    touched = touches(planned, batch)
    guards = (rule["guard_state"], rule["guard_errand"]) if short else (rule["long_guard"],) * 2
    if touched and (now.key is None or guards[0] and now.key.state != view.key.state or
                    guards[1] and now.key.mark != view.key.mark):
        return None
    rows = now._replace(bits=now.bits ^ bit(view.key) ^ bit(made.key))
    if made.key != view.key:
        rows = rows._replace(key=made.key)
    if planned.settles and (rule["finds_row"] or batch.what != "settle" or now.errand == state.polled[batch.server]):
        rows = rows._replace(errand=made.errand)
    if planned.settles or planned.changes:
        rows = rows._replace(used=made.used, other=made.other)
    if batch.what == "renew":
        rows = rows._replace(late=made.late)
    if made.promised != view.promised and now.promised != "order":
        rows = rows._replace(promised=made.promised)
    if not is_true(planned.answer, rows.key) and (touched or short or not is_true(planned.answer, view.key)):
        raise Failure("told")
    if planned.changes:
        state = commit(state, rows, True)
    elif planned.settles:
        state = commit(state, rows, rule["settle_raises"], rule["raises_all"])
    copied = rows.key if touched else view.key
    if copied and copied.mark and rule["unmarked_only"]:
        copied = "?"
    return state._replace(batch=None, polled=put(state.polled, batch.server, 0) if batch.what == "settle" else state.polled,
                          copies=put(state.copies, batch.server, Copy(0, copied, rows.used, rows.other)))


# ---- batches ----

def short_path(rule, state, server, what):
    """A packet that was planned on the copy. None: the batch goes the long way."""
    copy, late = state.copies[server], state.rows.late
    if copy is None or copy.ahead or copy.key == "?" and what not in ("acquire", "end") or what in ("settle", "refuse"):
        return None
    known = copy.key != "?"
    due = known and late and bit(copy.key) == 1
    if what in HTTP and copy.key is None or what == "acquire" and due or what == "expire" and not due:
        return None
    key = copy.key if known else HOLD
    view = Rows(key, 1 if key and key.mark else 0, 0, copy.used, copy.other, late, state.rows.promised)
    batch = Batch(server, what, False, what in HTTP or what == "expire", view)
    planned = plan(rule, what, view, batch.writes)
    refused = planned.answer == "confirmed" or planned.answer == "ended" and not planned.changes and what != "replay"
    if refused and rule["from_rows"]:
        return None
    if touches(planned, batch) and locked_by_shop(state):
        if not rule["nowait"]:
            raise Failure("waits")
        return None
    after = write(rule, state, batch, planned, True)
    if after is not None and not known:
        after = after._replace(copies=put(after.copies, server, after.copies[server]._replace(key="?")))
    return after


def begin(rule, state, server, what):
    """A batch on the long way that has locked its semaphores, and the row of the hold if it may write it."""
    rows = state.rows
    wants = what in HTTP or what == "settle" or what in ("expire", "acquire") and rows.late and bit(rows.key) == 1
    locks = wants and rule["long_lock"] and rule["locks_first"]
    batch = Batch(server, what, locks, wants, None)
    if locks and locked_by_shop(state):
        if not rule["skip_locked"]:
            raise Failure("waits")
        if what in HTTP and not rule["skipped_is_there"]:
            raise Failure("told")
        if what == "expire" and rows.other and not rule["past_skipped"]:
            raise Failure("hidden")
        if rule["only_locked"] and what != "acquire" and not (what == "expire" and rows.other):
            return None  # it has nothing else to do
        batch = batch._replace(locked=False, writes=not rule["only_locked"])
    if batch.locked or not rule["locks_first"]:
        batch = batch._replace(view=rows)  # what is locked cannot change until the batch reads it
    return state._replace(batch=batch)


def finish(rule, state):
    """The batch on the long way writes and commits."""
    batch = state.batch
    planned = plan(rule, batch.what, batch.view, batch.writes)
    if touches(planned, batch) and not batch.locked and locked_by_shop(state):
        if rule["locks_first"] or not rule["long_lock"]:
            raise Failure("waits")  # in the UPDATE
        return None  # skipped
    return write(rule, state, batch, planned, False)


def settle_beside(rule, state):
    """A mark is settled while a batch of the other permitd holds the lock of one of the semaphores."""
    planned = plan(rule, "settle", state.rows, True)
    if not planned.settles or locked_by_shop(state) or locked_by_batch(state):
        return None
    batch = Batch(1 - state.batch.server, "settle", True, True, state.rows)
    return write(dict(rule, raises_all=False), state, batch, planned, False)._replace(batch=state.batch)


def attempt(step, *arguments):
    try:
        return step(*arguments)
    except Failure as failure:
        return failure


def kept_by(rule, server):
    """The rule of a permitd: B does not know marks if the procedures are installed too early."""
    if rule["installed_late"] or server == 0:
        return rule
    return dict(rule, settles_first=False, long_guard=False, guard_errand=False)


def batch_steps(rule, state):
    batch, rows = state.batch, state.rows
    if batch:
        name = NAMES[batch.server]
        if batch.view is None:
            yield name + " reads", state._replace(batch=batch._replace(view=rows))
        else:
            yield name + " commits", attempt(finish, kept_by(rule, batch.server), state)
        yield name + " gives up", state._replace(batch=None)
        if not rule["locks_all"] and batch.what in ("acquire", "end") and state.alive[1 - batch.server]:
            yield NAMES[1 - batch.server] + " settles beside it", settle_beside(rule, state)
        return
    hot = not rule["own_row_only"] and any(shop and shop.written for shop in state.shops)
    gap = any(shop and shop.gap for shop in state.shops)
    for server in SERVERS:
        if not state.alive[server]:
            continue
        polls = rows.errand and rule["polls"] and (server == 0 or rule["either_polls"])
        if polls and not rule["finds_row"]:
            yield NAMES[server] + " polls", state._replace(polled=put(state.polled, server, rows.errand))
        todo = HTTP if rows.key else ()
        todo += ("end",) if rows.other else ("acquire",)
        todo += ("refuse",) if not state.copies[server] or state.copies[server].key == "?" else ()
        todo += ("expire",) if rows.late and (bit(rows.key) == 1 or rows.other) else ()
        todo += ("settle",) if polls and (rule["finds_row"] or state.polled[server]) else ()
        for what in todo:
            label = "%s %s" % (NAMES[server], what)
            if hot or gap and what == "acquire":
                yield label, Failure("waits")
            else:
                yield label, attempt(begin, rule, state, server, what)
                yield label + " short", attempt(short_path, kept_by(rule, server), state, server, what)


def other_steps(rule, state, max_faults):
    """Time, retention and faults."""
    rows = state.rows
    if not rows.late and (bit(rows.key) == 1 or rows.other):
        yield "time", state._replace(rows=rows._replace(late=True))
    if rows.key and not bit(rows.key):
        if not locked_by_shop(state) and not locked_by_batch(state):
            yield "retention", commit(state, rows._replace(key=None))
        elif locked_by_shop(state) and not rule["retention_skips"]:
            yield "retention", Failure("waits")
    if not rule["audit_once"] and state.audit is None:
        yield "audit reads marks", state._replace(audit=bool(rows.key and rows.key.mark))
    elif not rule["audit_once"]:
        wrong = state.audit != bool(rows.errand)
        yield "audit reads errands", Failure("alarm") if wrong else state._replace(audit=None)
    for server in SERVERS:
        if not state.alive[server]:
            yield "start " + NAMES[server], state._replace(alive=put(state.alive, server, True))
        elif state.faults < max_faults:
            batch = None if state.batch and state.batch.server == server else state.batch
            yield "kill " + NAMES[server], state._replace(
                batch=batch, copies=put(state.copies, server, None), polled=put(state.polled, server, 0),
                alive=put(state.alive, server, False), faults=state.faults + 1)
    if state.before and state.faults < max_faults:
        before, raised = state.before
        copies = (None, None) if rule["one_life"] else tuple(c and c._replace(ahead=c.ahead + raised) for c in state.copies)
        yield "failover", state._replace(rows=before, before=None, shops=(None,) * len(state.shops), batch=None,
                                         copies=copies, polled=(0, 0), faults=state.faults + 1)


def steps(rule, state, max_faults):
    """The possible steps: (label, the state after it, or a Failure)."""
    for source in (shop_steps(rule, state), batch_steps(rule, state), other_steps(rule, state, max_faults)):
        for label, after in source:
            if after is not None:
                yield label, after


# ---- judgements ----

def judge_rows(rows):
    key, failed = rows.key, []
    bought = rows.promised in ("order", "sale")
    if bought != is_sold(key):
        failed.append("expired" if bought and key and key.state == "expired" else "order")
    if key and key.state == "released" and not rows.promised:
        failed.append("freed")
    if rows.other == 1 and (bit(key) or bought):
        failed.append("twice")
    if bool(key and key.mark) != bool(rows.errand):
        failed.append("pair")
    if rows.bits != bit(key) or rows.used != bool(bit(key)) + bool(rows.other):
        failed.append("held")
    return failed


def judge_rest(rule, rows, alive):
    """What fails when no transaction is open, and the errands have been polled and settled once."""
    if not any(alive):
        return []
    if rows.errand and rule["polls"] and (alive[0] or rule["either_polls"]):
        rows = plan(rule, "settle", rows, True).rows
    left = rows.errand or rows.key and rows.key.mark or rows.promised and bit(rows.key) == 1 or \
        rows.promised == "back" and bit(rows.key)
    return judge_rows(rows) + (["stuck"] if left else [])


def judge(rule, state, rests):
    failed = judge_rows(state.rows)
    if not failed and state.batch is None and not any(state.shops):
        rest = (state.rows, state.alive)
        if rest not in rests:
            rests[rest] = judge_rest(rule, *rest)
        failed = rests[rest]
    return failed


# ---- the search ----

def canonical(state):
    """The same number for states in which only the two permitd, or the two shops, have changed places."""
    rows, before, shops, batch, copies, polled, audit, alive, faults = state
    a = hash((copies[0], polled[0], alive[0], batch is not None and batch.server == 0))
    b = hash((copies[1], polled[1], alive[1], batch is not None and batch.server == 1))
    one, two = hash(shops[0]), hash(shops[-1])
    return hash((rows, before, faults, audit, batch and batch[1:], (a, b) if a < b else (b, a),
                 (one, two) if one < two else (two, one)))


def history(node):
    labels = []
    while node[1]:
        node, label = node[1]
        labels.append(label)
    return labels[::-1]


def visit(rule, shops, max_faults, states_max, everything=False):
    """
    Visits the states, those that are near the start first. Returns their number, and the shortest history to each judgement
    that fails; to the first ones, unless everything is asked for. Nothing is visited behind a state that fails. States are
    remembered by 64-bit hashes.
    """
    identity = canonical if rule["either_polls"] and rule["installed_late"] and rule["finds_row"] else hash
    first = start(shops)
    seen, queue, rests, failed = {identity(first)}, deque([(first, None)]), {}, {}
    while queue and len(seen) < states_max and (everything or not failed):
        node = queue.popleft()
        for label, after in steps(rule, node[0], max_faults):
            if isinstance(after, Failure):
                found = [str(after)]
            else:
                if after.faults == max_faults and after.before is not None:
                    after = after._replace(before=None)
                number = identity(after)
                if number in seen:
                    continue
                seen.add(number)
                found = judge(rule, after, rests)
                if not found:
                    queue.append((after, (node, label)))
            for judgement in found:
                if judgement not in failed:
                    failed[judgement] = history(node) + [label]
    if len(seen) >= states_max:
        failed["not all states were visited"] = []
    return len(seen), failed


# ---- scenes ----

SOLD = "shop1 begins, shop1 confirm, shop1 commits, "
RELEASED = "shop1 begins, shop1 release, shop1 commits, "

# name, rules that are left out, the judgement that fails then, steps
SCENES = [
    ("measured_stall", "long_lock", "waits",
     "shop1 begins, time, A expire, A reads, shop1 confirm, A commits"),
    ("measured_end_of_a_sale", "long_lock long_guard", "expired",
     "shop1 begins, time, A expire, A reads, shop1 confirm, shop1 commits, A commits"),
    ("its_unit_is_sold_again", "long_lock long_guard", "twice",
     "shop1 begins, time, A expire, A reads, shop1 confirm, shop1 commits, A commits, A acquire short"),
    ("cached_release_ends_a_sale", "guard_errand", "order", SOLD + "A release short"),
    ("replay_on_a_copy_of_what_is_released", "guard_errand", "told", RELEASED + "A replay short"),
    ("short_path_waits_for_a_shop", "nowait", "waits", "shop1 begins, shop1 confirm, A confirm short"),
    ("long_path_waits_for_a_shop", "skip_locked", "waits", "shop1 begins, shop1 confirm, A confirm"),
    ("ended_after_the_snapshot_then_sold", "looks_again", "order",
     "shop1 begins, A release short, shop1 confirm, shop1 commits"),
    ("forgotten_after_the_snapshot_then_sold", "looks_again", "order",
     "shop1 begins, A release short, retention, shop1 confirm, shop1 commits"),
    ("procedure_writes_due_at", "due_untouched", "held", SOLD + "A settle, A commits"),
    ("mark_is_written_alone", "errand_row", "stuck", SOLD),
    ("call_with_autocommit", "in_transaction", "pair", "shop1 confirms outside"),
    ("settling_leaves_the_errand_row", "clears_row", "pair", SOLD + "A settle, A commits"),
    ("settling_leaves_the_mark", "clears_mark", "pair", SOLD + "A settle, A commits"),
    ("settling_deletes_the_errand_row_of_the_poll", "finds_row", "pair",
     SOLD + "A polls, B confirm, B commits, shop2 begins, shop2 refund, shop2 commits, A settle, A commits"),
    ("audit_reads_twice", "audit_once", "alarm", "audit reads marks, " + SOLD + "audit reads errands"),
    ("cancelled_without_a_mark_then_sold", "release_marks", "order",
     RELEASED + "shop2 begins, shop2 confirm, shop2 commits, A settle, A commits"),
    ("confirm_does_not_see_the_cancellation", "confirm_sees", "order",
     RELEASED + "shop2 begins, shop2 confirm, shop2 commits"),
    ("release_of_a_sale", "release_spares", "order", SOLD + "shop2 begins, shop2 release, shop2 commits"),
    ("release_of_a_sale_in_its_transaction", "release_spares", "order",
     "shop1 begins, shop1 confirm, shop1 release, shop1 commits"),
    ("errand_row_outlives_a_rollback", "transactional", "pair", "shop1 begins, shop1 release, shop1 rolls back"),
    ("freed_although_rolled_back", "transactional release_marks", "freed",
     "shop1 begins, shop1 release, shop1 rolls back, A settle, A commits"),
    ("procedure_writes_the_semaphore", "own_row_only", "waits", "shop1 begins, shop1 confirm, A acquire"),
    ("lookup_locks_a_gap", "plain_lookup", "waits", "shop1 begins, A acquire"),
    ("serializable_caller", "no_serializable", "waits", "shop1 begins, B acquire"),
    ("errands_are_not_polled", "polls", "stuck", SOLD),
    ("the_only_poller_is_killed", "either_polls", "stuck", SOLD + "kill A"),
    ("confirm_over_http_then_released", "settles_first", "told", RELEASED + "B confirm, B commits"),
    ("expiry_of_a_marked_sale", "settles_first", "expired", SOLD + "time, A expire, A commits"),
    ("renewal_of_a_marked_sale", "settles_first", "told", SOLD + "A renew, A commits"),
    ("release_of_a_marked_sale_over_http", "settles_first", "order", SOLD + "B release, B commits"),
    ("older_permitd_ends_a_marked_sale", "installed_late", "expired", SOLD + "time, B expire, B commits"),
    ("stale_copy_breaks_held", "settle_raises", "held", SOLD + "B settle, B commits, A confirm short"),
    ("stale_copy_ends_a_sale", "settle_raises", "order", SOLD + "B settle, B commits, A release short"),
    ("settled_under_one_of_two_locks", "locks_all", "held",
     RELEASED + "A acquire, A reads, B settles beside it, A commits"),
    ("copy_of_one_semaphore_stays", "raises_all", "held", RELEASED + "B settle, B commits, A acquire short"),
    ("read_before_the_lock_without_a_guard", "locks_first long_guard", "order",
     "shop1 begins, A release, shop1 confirm, shop1 commits, A commits"),
    ("skipped_then_seen", "only_locked", "waits",
     "shop1 begins, shop1 hold, A confirm, shop1 rolls back, A reads, shop2 begins, shop2 confirm, A commits"),
    ("skipped_is_taken_for_unknown", "skipped_is_there", "told", "shop1 begins, shop1 confirm, A replay"),
    ("open_shops_hide_due_holds", "past_skipped", "hidden",
     "A acquire short, time, shop1 begins, shop1 confirm, A expire"),
    ("retention_waits_for_a_shop", "retention_skips", "waits", "shop1 begins, A release short, shop1 hold, retention"),
    ("refusal_from_a_copy", "from_rows", "told",
     "A confirm short, shop1 begins, shop1 refund, shop1 commits, A release short"),
    ("marked_copy_outlives_a_lost_tail", "one_life unmarked_only guard_errand", "freed",
     RELEASED + "B refuse, B reads, B commits, failover, B replay short"),
    ("copy_outlives_a_lost_tail", "one_life", "held", "A renew short, failover, B confirm, B commits, A confirm short"),
    ("unit_is_granted_on_a_copy_of_a_lost_release", "one_life", "twice",
     "A release short, failover, B renew, B commits, A acquire short"),
]


def replay(rule, labels, must):
    """The judgements that fail in a history. `must`: all its steps are possible; else the impossible ones are left out."""
    state, failed = start(2), set()
    for label in labels:
        after = dict(steps(rule, state, 1)).get(label)
        if isinstance(after, Failure):
            failed.add(str(after))
        elif after is not None:
            state = after
            failed.update(judge_rows(state.rows))
        elif must:
            failed.add("no step " + label)
    return failed | set(judge_rest(rule, state.rows, state.alive))


def without(names):
    return dict(RULE, **dict.fromkeys(names, False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--night", action="store_true")
    parser.add_argument("--without", help="leave out these rules only")
    parser.add_argument("--states", type=int, default=5000000, help="stop a search after so many")
    options = parser.parse_args()
    if options.without:
        count, found = visit(without(options.without.split(",")), 2, 1, options.states, everything=True)
        print("%d states" % count)
        for judgement, labels in sorted(found.items()):
            print("%-8s %s" % (judgement, ", ".join(labels)))
        return 0

    passed = failed = 0

    def report(good, text):
        nonlocal passed, failed
        passed, failed = passed + good, failed + (not good)
        print("%s %s" % ("ok  " if good else "FAIL", text), flush=True)

    def search(names, shops, max_faults, fails, everything=False):
        for faults in range(max_faults + 1) if fails and not everything else (max_faults,):
            count, found = visit(without(names), shops, faults, options.states, everything)
            if found:
                break
        report(bool(found) == fails and "not all states were visited" not in found, "%s: %d states, faults %d, %s" % (
            "without " + " and ".join(names) if names else "the rule", count, faults,
            ", ".join(sorted(found)) or "no judgement fails"))
        if found and not fails:
            print("\n".join("     %s: %s" % (judgement, ", ".join(labels)) for judgement, labels in found.items()))

    bare = set(RULE)
    for name, names, judgement, labels in SCENES:
        names, labels = names.split(), [label for label in labels.split(", ") if label]
        bare -= set(names)
        whole, less = replay(RULE, labels, False), replay(without(names), labels, True)
        good = not whole and judgement in less and not any(text.startswith("no step") for text in less)
        report(good, "scene %s, without %s: %s%s" % (
            name, " and ".join(names), ", ".join(sorted(less)) or "no judgement fails",
            "; with the rule: " + ", ".join(sorted(whole)) if whole else ""))
    report(bare == {"guard_state"}, "rules without a scene: " + ", ".join(sorted(bare)))

    search((), 2, 3 if options.night else 1, False)
    for names in SPARE:
        search(names, 2 if options.night else 1, 1, False)
    spare = {name for names in SPARE for name in names}
    for names in [(name,) for name in RULE if name not in spare] + PAIRS:
        search(names, 2, 1, True, options.night)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
