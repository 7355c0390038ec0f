#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A model of the queue's reservations (docs/design.md, "The queue"), without a database: semaphores, waiters, and batches
that lock the semaphores of one request each and know others only from plain reads. It runs the scenes of the rule and
random histories, and judges each batch by an all-knowing walk of the same rows:

  passed   a batch grants no request that the all-knowing walk would not grant in that moment;
  refused  a request that does not wait is refused only if the all-knowing walk does not grant it either;
  idle     when all mail is read and every permitd has looked at its waiters, the all-knowing walk grants no request;
  starves  a waiter is granted within a bound once it is protected, if no confirmed hold keeps it from its need.

Then it leaves out one part of the rule at a time: each time a judgement must fail, or the part is not needed.

    tests/model/reservations.py [--runs N] [--seed N]     prints "N passed, N failed"
"""
import argparse
import random
import sys

PROTECTED = 30  # age in steps from which a waiter reserves
STARVES = 400   # steps after which a waiter that can be served must hold

# The parts of the rule. A variant leaves one of them out, or changes it as its name says.
RULE = dict(
    reserves=True,            # a protected waiter that does not fit reserves its need
    whole_need=True,          # on all its semaphores, or nothing: only if its need fits beside the reservations before it
    confirmed_counts=True,    # ... and beside what is confirmed, which never comes back
    paused_reserves=False,    # a waiter on a paused or closed semaphore reserves nothing
    kept_place_reserves=False,  # nor does one whose place nobody asks for
    fifo_bar=True,            # under fifo nobody reserves behind one that reserves nothing
    binds_newcomers=True,     # reservations bind requests that are new, too
    keeps=True,               # one that may fit and cannot be decided keeps its need, and is called
    keeps_behind_kept=True,   # one that would reserve behind kept units keeps its need instead: it may not reserve in truth
    put_backs=2,              # a new request that does not wait and lacks only kept units runs again so often, with more locks
    glimpses=True,            # semaphores that are not locked are read plainly
    in_turn=True,             # ... with the protected waiters before, and their semaphores
    young_reserve=False,      # only protected waiters reserve
)


class Semaphore:
    def __init__(self, capacity, fifo=False):
        self.capacity, self.fifo, self.paused = capacity, fifo, False
        self.held = {}  # request: units

    def free(self):
        return self.capacity - sum(self.held.values())

    def confirmed(self):
        return sum(units for request, units in self.held.items() if request.confirmed)


class Request:
    def __init__(self, name, wants, place, since):
        self.name, self.wants, self.place, self.since = name, wants, place, since
        self.asked, self.confirmed, self.ends = True, False, None

    def order(self):
        return (self.place, self.name)


class World:
    def __init__(self, rule=None, **capacities):
        self.rule = dict(RULE, **(rule or {}))
        self.semaphores = {name: Semaphore(capacity) for name, capacity in capacities.items()}
        self.now, self.waiting, self.mail, self.granted = 0, [], [], []

    # ---- the walk ----

    def closed(self, request, known):
        return any(s in known and (self.semaphores[s].paused or self.semaphores[s].capacity == 0) for s in request.wants)

    def protected(self, request):
        return self.rule["young_reserve"] or self.now - request.since >= PROTECTED

    def walk(self, locks, known, seen, new=None):
        """
        Decides the waiters `seen` in the order of their places, with `new` among them. Returns the requests that are
        granted, those that are called, those that keep their need, and whether `new` lacks only kept units.
        """
        rule = self.rule
        taken = dict.fromkeys(self.semaphores, 0)
        reserved, kept = dict(taken), dict(taken)
        shut, shut_by_kept, barred = set(), set(), set()  # fifo
        grants, called, keepers, only_kept = [], [], [], False

        def keep(request, wants):
            keepers.append(request)
            for s, units in wants:
                kept[s] += units
                shut_by_kept.update({s} if self.semaphores[s].fifo else set())

        for request in sorted(seen + ([new] if new else []), key=Request.order):
            is_new = request is new
            if not request.asked and not rule["kept_place_reserves"]:
                continue
            if self.closed(request, known) and not rule["paused_reserves"]:
                continue
            wants = [(s, units) for s, units in request.wants.items() if s in known]

            def fits(with_kept):
                return request.asked and not self.closed(request, known) and all(
                    s not in shut and (s not in shut_by_kept or not with_kept) and
                    self.semaphores[s].free() - taken[s] - (reserved[s] if rule["binds_newcomers"] or not is_new else 0)
                    - (kept[s] if with_kept else 0) >= units for s, units in wants)

            if fits(True) and set(request.wants) <= locks:
                grants.append(request)
                for s, units in wants:
                    taken[s] += units
                continue
            may_fit = fits(True) or fits(False)
            if is_new:
                only_kept = may_fit
                continue
            if may_fit:
                called.append(request)
                # A semaphore that is unknown is beyond the bound: the waiter is then in nobody's way.
                if rule["keeps"] and set(request.wants) <= known:
                    keep(request, wants)
                continue
            reserves = rule["reserves"] and self.protected(request) and (set(request.wants) <= known)
            for s, units in wants:
                room = self.semaphores[s].capacity - (self.semaphores[s].confirmed() if rule["confirmed_counts"] else 0)
                if rule["whole_need"] and reserved[s] + units > room:
                    reserves = False
                if rule["fifo_bar"] and s in barred:
                    reserves = False
            if reserves and rule["keeps_behind_kept"] and any(kept[s] for s, _ in wants):
                keep(request, wants)
                continue
            for s, units in wants:
                reserved[s] += units if reserves else 0
                if self.semaphores[s].fifo:
                    shut.add(s)
                    barred |= set() if reserves else {s}
        return grants, called, keepers, only_kept

    def all_knowing(self, new=None):
        """The grants of a walk that knows and locks everything, by the whole rule."""
        rule, self.rule = self.rule, RULE
        everything = set(self.semaphores)
        grants = self.walk(everything, everything, self.waiting, new)[0]
        self.rule = rule
        return grants

    # ---- batches ----

    def read(self, locks):
        """Returns the semaphores that a batch with these locks knows, and the waiters that it has read."""
        known = set(locks)
        seen = [w for w in self.waiting if set(w.wants) & locks]
        while self.rule["glimpses"]:
            more = {s for w in seen for s in w.wants} - known
            if not more:
                break
            known |= more
            if not self.rule["in_turn"]:
                break
            seen = [w for w in self.waiting if w in seen or any(
                s in w.wants and (self.semaphores[s].fifo or self.protected(w)) for s in known)]
        return known, seen

    def grant(self, request):
        if request in self.waiting:
            self.waiting.remove(request)
        for s, units in request.wants.items():
            self.semaphores[s].held[request] = units
        self.granted.append(request)

    def batch(self, locks, new=None, waits=False, widened=0):
        """Runs a batch; returns "granted", "waits" or "refused" for the new request. `widened`: how often it was put back."""
        known, seen = self.read(locks)
        judged = self.all_knowing(new)
        grants, called, keepers, only_kept = self.walk(locks, known, seen, new)
        self.mail += [w for w in called if w not in self.mail]
        for request in grants:
            if request not in judged:
                raise Failure("passed", "%s is granted" % request.name)
        if new and new not in grants and only_kept and not waits and widened < self.rule["put_backs"]:
            return self.batch(locks | {s for w in keepers for s in w.wants}, new, widened=widened + 1)
        for request in grants:
            self.grant(request)
        if not new or new in grants:
            return "granted"
        if waits:
            self.waiting.append(new)
            return "waits"
        if new in judged:
            raise Failure("refused", "%s is refused" % new.name)
        return "refused"

    def request(self, name, wants, waits=True, priority=0, since=None):
        since = self.now if since is None else since
        new = Request(name, wants, since - 10 * priority, since)
        return new, self.batch(set(wants), new, waits)

    def end(self, request):
        for s in request.wants:
            del self.semaphores[s].held[request]
        self.batch(set(request.wants))

    def read_mail(self, dice=None):
        """Each called waiter runs a batch with the locks of all its semaphores."""
        for _ in range(1000):
            if not self.mail:
                return
            waiter = self.mail.pop(dice.randrange(len(self.mail)) if dice else 0)
            before = len(self.granted)
            if waiter in self.waiting:
                self.batch(set(waiter.wants))
            if len(self.granted) == before:  # the batch has changed nothing: its calls wait for the net
                self.mail = []
        raise Failure("idle", "the calls do not end")

    def net(self):
        for waiter in sorted(self.waiting, key=Request.order):
            if waiter in self.waiting:
                self.batch(set(waiter.wants))
        self.read_mail()


class Failure(Exception):
    def __init__(self, judgement, text):
        super().__init__("%s: %s" % (judgement, text))
        self.judgement = judgement


# ---- scenes ----

def old(world, name, **wants):
    """A protected waiter."""
    waiter = Request(name, wants, world.now - 2 * PROTECTED + len(world.waiting), world.now - 2 * PROTECTED)
    world.waiting.append(waiter)
    return waiter


def young(world, name, **wants):
    waiter = Request(name, wants, world.now - 1, world.now - 1)
    world.waiting.append(waiter)
    return waiter


def holder(world, name, **wants):
    request = Request(name, wants, 0, 0)
    world.grant(request)
    return request


def t0_head_needs_one_of_ten(rule):
    w = World(rule, d=1, s=10)
    holder(w, "D", d=1)
    old(w, "W", d=1, s=1)
    got = sum(w.request("v%d" % i, {"s": 1}, waits=False)[1] == "granted" for i in range(12))
    return got == 9


def t1_fifo_head_is_not_passed(rule):
    w = World(rule, d=1, s=2)
    w.semaphores["s"].fifo = True
    holder(w, "D", d=1)
    young(w, "W", d=1, s=1)
    return w.request("v", {"s": 1}, waits=False)[1] == "refused"


def t2_waiter_of_two_is_called(rule):
    w = World(rule, x0=1, x1=1, x2=1)
    a, _ = holder(w, "a", x0=1), holder(w, "v", x1=1)
    young(w, "W2", x1=1, x2=1)
    third = young(w, "W3", x0=1, x2=1)
    again = young(w, "z", x0=1)
    w.end(a)
    w.read_mail()
    return third in w.granted and again not in w.granted


def t3_reservations_in_turn(rule):
    w = World(rule, d=1, x=1, s=2)
    holder(w, "D", d=1), holder(w, "V", s=1)
    old(w, "W0", d=1), old(w, "W1", d=1, x=1), old(w, "W2", x=1, s=2)
    return w.request("v", {"s": 1}, waits=False)[1] == "refused"


def t4_equal_waiters_reserve_once(rule):
    w = World(rule, d=1, s=3)
    holder(w, "J", d=1, s=1)
    old(w, "j1", d=1, s=1), old(w, "j2", d=1, s=1), old(w, "j3", d=1, s=1)
    return w.request("v", {"s": 1}, waits=False)[1] == "granted"


def t4_next_waiter_comes_before_new(rule):
    w = World(rule, d=1, s=3)
    holder(w, "J", d=1, s=1)
    old(w, "j1", d=1, s=1), old(w, "j2", d=1, s=1), old(w, "j3", d=1, s=1)
    last = old(w, "k", s=1)
    return w.request("v", {"s": 1}, waits=False)[1] == "refused" and last in w.granted


def behind_kept(rule):
    """W0 takes x when it is called, so W1 reserves it then, and W2 reserves nothing."""
    w = World(rule, d=1, e=1, x=1, y=1, s=1, t=1)
    holder(w, "D", d=1), holder(w, "E", e=1)
    old(w, "W0", x=1, y=1), old(w, "W1", x=1), old(w, "W2", d=1, x=1, s=1)
    return w


def t4_reservation_behind_kept_units_may_not_hold(rule):
    return behind_kept(rule).request("v", {"s": 1}, waits=False)[1] == "granted"


def t4_reservation_behind_one_that_may_not_hold(rule):
    w = behind_kept(rule)
    old(w, "W3", e=1, s=1, t=1)
    return w.request("v", {"t": 1}, waits=False)[1] == "refused"


def t5_pause_ends_reservation(rule):
    w = World(rule, d=1, s=2)
    holder(w, "D", d=1)
    old(w, "W1", d=1, s=1)
    second = old(w, "W2", s=2)
    w.net()
    before = second in w.granted
    w.semaphores["d"].paused = True
    w.net()
    return not before and second in w.granted


def t6_reservation_of_one_that_lacks_more(rule):
    w = World(rule, d=1, x=1)
    holder(w, "D", d=1)
    old(w, "W1", d=1, x=1)
    second = old(w, "W2", x=1)
    w.net()
    return second not in w.granted


def t7_need_beyond_capacity_reserves_nothing(rule):
    w = World(rule, d=1, s=2)
    holder(w, "W1", d=1, s=1)
    old(w, "k", d=1), old(w, "W2", d=1, s=1)
    return w.request("v", {"s": 1}, waits=False)[1] == "granted"


def t9_confirmed_units_are_never_reserved(rule):
    w = World(rule, s=3)
    sold = holder(w, "S", s=1)
    sold.confirmed = True
    old(w, "W", s=3)
    return w.request("v", {"s": 1}, waits=False)[1] == "granted"


def t10_priority_is_bound_by_those_before_it(rule):
    w = World(rule, d=1, s=2)
    holder(w, "D", d=1)
    old(w, "W", d=1, s=2)
    first = w.request("first", {"s": 1}, waits=False, priority=9)[1]
    return first == "granted"


SCENES = [value for name, value in sorted(globals().items()) if name[:1] == "t" and name[1:2].isdigit()]


# ---- random histories ----

def hopeless(world, request):
    """A confirmed hold keeps it from its need; or it stands behind such a one under fifo, or where nothing is granted."""
    lost = {s for s, units in request.wants.items()
            if world.semaphores[s].paused or units > world.semaphores[s].capacity - world.semaphores[s].confirmed()}
    if lost or not request.asked:
        return True
    return any(world.semaphores[s].fifo and s in other.wants and other.order() < request.order() and other is not request
               and other.asked and hopeless(world, other) for other in world.waiting for s in request.wants)


def history(seed, rule, steps=300):
    dice = random.Random(seed)
    names = "abcd"[:dice.randint(2, 4)]
    world = World(rule, **{name: dice.randint(1, 4) for name in names})
    for semaphore in world.semaphores.values():
        semaphore.fifo = dice.random() < 0.2
    confirms, pauses, crowd = dice.random() < 0.3, dice.random() < 0.3, dice.randint(2, 10)
    hopeful_since = {}

    def wants():
        chosen = dice.sample(names, min(len(names), dice.choice((1, 1, 1, 2, 2, 3))))
        return {s: dice.randint(1, world.semaphores[s].capacity) for s in chosen}

    for number in range(steps):
        world.now += 1
        for request in [r for r in world.granted if r.ends == world.now]:
            world.end(request)
        for _ in range(dice.randint(0, 2)):
            new, _ = world.request("%04d" % (len(world.granted) + number * 10), wants(),
                                   waits=dice.random() < 0.6 and len(world.waiting) < crowd,
                                   priority=dice.choice((0, 0, 0, 0, 5, 9)))
            new.asked = dice.random() < 0.95
        if pauses and dice.random() < 0.05:
            semaphore = world.semaphores[dice.choice(names)]
            semaphore.paused = not semaphore.paused
        world.read_mail(dice if dice.random() < 0.7 else None) if dice.random() < 0.8 else None
        for request in world.granted:
            if request.ends is None and not request.confirmed:
                request.ends = world.now + dice.randint(1, 8)
        for request in [r for r in world.granted if r.ends == world.now + 1]:
            if confirms and dice.random() < 0.02:
                request.confirmed, request.ends = True, None
        if number % 10 == 9:
            world.net()
            world.net()
            left = world.all_knowing()
            if left:
                raise Failure("idle", "%s fits and is not granted" % left[0].name)
        for waiter in world.waiting:
            if hopeless(world, waiter) or not world.protected(waiter):
                hopeful_since[waiter] = world.now
            if world.now - hopeful_since.get(waiter, waiter.since) > STARVES:
                raise Failure("starves", "%s has waited %d steps" % (waiter.name, world.now - waiter.since))
        world.waiting = [w for w in world.waiting if w.asked or world.now - w.since < 60]
        world.granted = [r for r in world.granted if r.confirmed or any(r in s.held for s in world.semaphores.values())]


def steady(rule):
    """Units are taken by ones as soon as they are free; a protected waiter wants all of them, or some and another."""
    dice = random.Random(1)
    world = World(rule, s=3, d=1)
    for number in range(600):
        world.now += 1
        for request in [r for r in world.granted if r.ends == world.now]:
            world.end(request)
        if number == 5:
            whole, _ = world.request("whole", {"s": 3})
        while world.request("n%04d" % (number * 10 + dice.randint(0, 9)), {"s": 1}, waits=False)[1] == "granted":
            pass
        for request in world.granted:
            if request.ends is None:
                request.ends = world.now + dice.randint(2, 6)
        world.granted = [r for r in world.granted if any(r in s.held for s in world.semaphores.values())]
        if number > 5 and whole not in world.waiting:
            return
    raise Failure("starves", "who wants the whole semaphore never gets it")


def judge(rule, seeds):
    """Returns the judgements that fail, each with its first example."""
    failed = {}
    for scene in SCENES:
        try:
            held = scene(rule)
        except Failure as failure:
            held = False
            failed.setdefault(failure.judgement, "%s: %s" % (scene.__name__, failure))
        if not held:
            failed.setdefault("scene", scene.__name__)
    runs = [(steady, ())] + [(history, (seed,)) for seed in seeds]
    for run, arguments in runs:
        try:
            run(*arguments, rule)
        except Failure as failure:
            failed.setdefault(failure.judgement, "%s%s: %s" % (run.__name__, arguments, failure))
    return failed


VARIANTS = [dict(reserves=False), dict(whole_need=False), dict(confirmed_counts=False), dict(paused_reserves=True),
            dict(kept_place_reserves=True), dict(fifo_bar=False), dict(binds_newcomers=False), dict(keeps=False),
            dict(keeps_behind_kept=False), dict(put_backs=0), dict(put_backs=1), dict(glimpses=False),
            dict(in_turn=False), dict(young_reserve=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.runs)
    passed = failed = 0
    for variant in [{}] + VARIANTS:
        name = ", ".join("%s=%s" % item for item in variant.items()) or "the rule"
        found = judge(variant, seeds)
        good = bool(found) == bool(variant)
        passed, failed = passed + good, failed + (not good)
        print("%s %s: %s" % ("ok  " if good else "FAIL", name,
                             "; ".join("%s (%s)" % item for item in sorted(found.items())) or "no judgement fails"))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
