#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
An exhaustive model of the numbers of the feed. Batches take an id, write an event and commit, or are rolled back; two batches
of one semaphore never overlap, because the first holds its lock until it has committed. Two tasks number what is
committed, with reads that see only that. Every order of their steps is visited.

Judgements, of each state:

  order    of two events of a semaphore, the one that was committed first has the smaller number, and has it when the other has
           one;
  gaps     the numbers are 1, 2, 3, ... without gaps, and none is given twice;
  all      when nothing runs any more, a task numbers all that is committed.

A second model has the database that crashes, or fails over to a copy that lacks the last commits: others see a commit before it
is flushed. Its judgements are of a reader that keeps the number of the last event that it was given:

  missed   an event that it was given keeps its number, so no other one gets a number that the reader has passed;
  told     it is told that events are lost only after a failover.

Then it leaves out one rule of a model at a time: a judgement must fail.

    tests/model/feed.py                         prints "N passed, N failed"
"""
import sys
from collections import deque

RULES = dict(
    locks_head="the head is locked for the whole transaction",
    one_read="the rows are read by one statement",
    by_id="they are numbered in the order of ids",
    no_skip="a row is not passed over because another session has locked it",
    not_above="rows with an id below the last numbered one are numbered, too",
    at_end="a batch takes the id while it holds the lock of its semaphore",
)
SEMAPHORES = (0, 0, 1)  # of each batch, in the order in which those of one semaphore take its lock
LIMIT = 2               # rows that one transaction numbers

# A batch: 0 not begun, 1 locked, 2 has an id, 3 committed, 4 rolled back.
# A task: None, or the head and the (id, batch) that it has read; rows None: none yet; an id: those below it
START = ((0,) * len(SEMAPHORES), (0,) * len(SEMAPHORES), (), (None, None), 1)


def steps(state, rules):
    """The states that follow: batches, ids, rows ((id, batch, number) of committed rows), tasks, next id."""
    batches, ids, rows, tasks, next_id = state

    def batch(i, stage, id_=None):
        return batches[:i] + (stage,) + batches[i + 1:], ids if id_ is None else ids[:i] + (id_,) + ids[i + 1:]

    for i, stage in enumerate(batches):
        locked = any(batches[j] in (1, 2) and SEMAPHORES[j] == SEMAPHORES[i] for j in range(len(batches)) if j != i)
        if not rules["at_end"] and stage == 0 and ids[i] == 0:  # the id comes before the lock
            yield (batches, ids[:i] + (next_id,) + ids[i + 1:], rows, tasks, next_id + 1)
        if stage == 0 and not locked and (rules["at_end"] or ids[i]):
            new, _ = batch(i, 1)
            yield (new, ids, rows, tasks, next_id)
        if stage == 1:
            new, taken = batch(i, 2, ids[i] or next_id)
            yield (new, taken, rows, tasks, next_id + (ids[i] == 0))
        if stage == 2:
            yield (batch(i, 3)[0], ids, rows + ((ids[i], i, 0),), tasks, next_id)
            yield (batch(i, 4)[0], ids, rows, tasks, next_id)

    for t, task in enumerate(tasks):
        def with_task(value, new_rows=rows):
            return (batches, ids, new_rows, tasks[:t] + (value,) + tasks[t + 1:], next_id)

        other = tasks[1 - t]
        last = max([number for _, _, number in rows], default=0)
        if task is None:
            if other is None or not rules["locks_head"]:
                yield with_task((last, None, None))
            continue
        head, read, middle = task
        visible = sorted((id_, b) for id_, b, number in rows if number == 0)
        if not rules["by_id"]:
            visible.sort(reverse=True)
        if not rules["not_above"]:
            above = max([id_ for id_, _, number in rows if number], default=0)
            visible = [row for row in visible if row[0] > above]
        if read is None and rules["one_read"]:
            yield with_task((head, tuple(visible[:LIMIT]), None))
            if not rules["no_skip"]:  # a stranger, such as a backup, may have locked the first one
                yield with_task((head, tuple(visible[1:LIMIT + 1]), None))
            continue
        if read is None:  # the ids below one, by a statement of its own
            for id_ in range(2, next_id):
                yield with_task((head, tuple(row for row in visible if row[0] < id_), id_))
            continue
        if middle:  # and the others
            later = tuple(row for row in visible if row[0] >= middle)
            yield with_task((head, (read + later)[:LIMIT], None))
            continue
        numbers = {b: head + n + 1 for n, (_, b) in enumerate(read)}
        yield with_task(None, tuple((id_, b, numbers.get(b, number)) for id_, b, number in rows))


def broken(state):
    """The name of the judgement that fails; None: none does."""
    batches, ids, rows, tasks, _ = state
    numbers = sorted(number for _, _, number in rows if number)
    if numbers != list(range(1, len(numbers) + 1)):
        return "gaps"
    for at, (_, b, number) in enumerate(rows):  # in the order of commits
        for _, later, later_number in rows[at + 1:]:
            if SEMAPHORES[b] == SEMAPHORES[later] and later_number and (number == 0 or number > later_number):
                return "order"
    return None


def judge(rules):
    """Returns the number of states, and the judgement that fails first."""
    seen, queue = {START}, deque([START])
    while queue:
        state = queue.popleft()
        name = broken(state)
        if name:
            return len(seen), name
        moved = False
        for new in steps(state, rules):
            moved |= new[0] != state[0] or new[2] != state[2]
            if new not in seen:
                seen.add(new)
                queue.append(new)
        if all(b in (3, 4) for b in state[0]) and any(number == 0 for _, _, number in state[2]):
            # some steps from here must number something
            reached, walk = {state}, deque([state])
            done = False
            while walk and not done:
                for new in steps(walk.popleft(), rules):
                    done |= new[2] != state[2]
                    if new not in reached:
                        reached.add(new)
                        walk.append(new)
            if not done:
                return len(seen), "all"
    return len(seen), None


# ---- durability ----

DURABLE_RULES = dict(
    returned="`durable` is written after the COMMIT of the numbers has returned",
    real_write="a pass without events commits a write before it writes `durable`",
    bounded="readers read numbers up to `durable`",
    by_head="a position is lost if it is beyond the head, not if it is beyond `durable`",
)
# A version of the database: the number of each event (None: not committed, 0: none yet), head, durable, the server in
# `cluster`, the epochs with the head that each found. Each commit appends one, visible at once; a commit that returns
# flushes it and those before it; a crash undoes others. A task: None, or the index of its commit and the head in it.
# A reader: the epoch and the number of its cursor, the events that it was given, whether it is misled.
FIRST = ((None, None), 0, 0, 1, ((1, 0),))
DURABLE_START = ((FIRST,), 0, 1, 2, (None, None), (1, 0, (), None), (1, 1, 1))


def read(version, reader, rules, failed_over):
    """What the reader is after it has read the next event, or was told that its position is lost."""
    numbers, head, durable, _, epochs = version
    epoch, seq, given, _ = reader
    least = min([found for began, found in epochs if began > epoch], default=head)
    last = min(least, head if rules["by_head"] else durable)
    if epoch > epochs[-1][0] or seq > last:
        go_on = min(seq, last)
        return (epochs[-1][0], go_on, given[:go_on], None if failed_over else "told")
    for at, event in enumerate(given):
        if numbers[event] != at + 1:
            return (epoch, seq, given, "missed")
    if seq < (durable if rules["bounded"] else head):
        return (epochs[-1][0], seq + 1, given + (numbers.index(seq + 1),), None)
    return (epochs[-1][0], seq, given, None)


def forget(state):
    """The same state without what decides nothing: the order of the tasks, and versions that cannot return."""
    versions, flushed, server, clock, tasks, reader, budgets = state
    cut = 0 if budgets[1] else flushed
    tasks = sorted((max(task[0] - cut, 0), task[1]) for task in tasks if task)
    tasks = tuple(tasks) + (None,) * (2 - len(tasks))
    return (versions[cut:], flushed - cut, server, clock, tasks, reader, budgets)


def durable_steps(state, rules):
    versions, flushed, server, clock, tasks, reader, budgets = state
    crashes, failovers, deaths = budgets
    now = versions[-1]
    numbers, head, durable, served, epochs = now

    def commit(version, new_tasks=tasks, new_flushed=flushed, new_clock=clock):
        return (versions + (version,), new_flushed, server, new_clock, new_tasks, reader, budgets)

    for i, number in enumerate(numbers):  # a batch
        if number is None:
            yield commit((numbers[:i] + (0,) + numbers[i + 1:], head, durable, served, epochs))
    if served != server:  # the epoch rises
        yield commit((numbers, head, durable, server, epochs + ((clock, head),)), new_clock=clock + 1)
    for t, task in enumerate(tasks):
        def with_task(value):
            return tasks[:t] + (value,) + tasks[t + 1:]

        waiting = [i for i, number in enumerate(numbers) if number == 0]
        if task is None and served == server and (waiting or durable < head):
            new = tuple(head + 1 + waiting.index(i) if i in waiting else number for i, number in enumerate(numbers))
            after = head + len(waiting)
            if not waiting and not rules["real_write"]:
                yield commit((numbers, head, head, served, epochs))
            else:
                shown = durable if rules["returned"] else after
                yield commit((new, after, shown, served, epochs), with_task((len(versions), after)))
        if task is not None:
            index, after = task
            yield commit((numbers, head, max(durable, after), served, epochs), with_task(None), max(flushed, index))
            if deaths:
                yield (versions, flushed, server, clock, with_task(None), reader, (crashes, failovers, deaths - 1))
    if crashes:
        for k in range(flushed, len(versions)):
            yield (versions[:k + 1], k, server, clock, (None, None), reader, (crashes - 1, failovers, deaths))
    if failovers:  # to a copy, which may lack flushed versions, and has flushed none
        for k in range(len(versions)):
            yield (versions[:k + 1], 0, server + 1, clock, (None, None), reader, (crashes, failovers - 1, deaths))
    read_on = read(now, reader, rules, failovers == 0)
    if read_on != reader:
        yield (versions, flushed, server, clock, tasks, read_on, budgets)


def judge_durable(rules):
    """Returns the number of states, and the judgement that fails first."""
    seen, queue = {DURABLE_START}, deque([DURABLE_START])
    while queue:
        state = queue.popleft()
        if state[5][3]:
            return len(seen), state[5][3]
        for new in map(forget, durable_steps(state, rules)):
            if new not in seen:
                seen.add(new)
                queue.append(new)
    return len(seen), None


def main():
    passed = failed = 0
    for model, rules in ((judge, RULES), (judge_durable, DURABLE_RULES)):
        states, name = model({rule: True for rule in rules})
        print(f"{'ok' if name is None else 'not ok'} - all rules: {states} states, {name or 'no judgement fails'}")
        passed, failed = passed + (name is None), failed + (name is not None)
        for rule, text in rules.items():
            states, name = model({other: other != rule for other in rules})
            print(f"{'ok' if name else 'not ok'} - without {rule} ({text}): {name or f'nothing fails in {states} states'}")
            passed, failed = passed + (name is not None), failed + (name is None)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
