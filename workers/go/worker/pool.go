package worker

import (
	"container/list"
	"time"

	"sagad.dev/go/sagapb"
)

// pool.go and session.go hold the state of a worker: its tasks, slots, leases, reports and drain. They
// are pure: no I/O, no goroutine, no clock and no chance of their own. Every call needs the worker's
// lock held.

const (
	startedMax     = 10000 // tasks that were started and have no ack: all must fit into a Hello
	spareAfter     = 100 * time.Millisecond
	surplusAfter   = time.Second
	leaseMargin    = 80 // percent of a lease after which its handler has to stop
	gapAfter       = 400 * time.Millisecond
	distrustFor    = time.Second
	drainLinger    = 250 * time.Millisecond // drained, but a task may be on its way to us
	handlersMax    = 256
	inFlightMax    = 10000
	addressesMax   = 16
	drainMax       = 24 * time.Hour
	retryAfterMax  = 24 * time.Hour
	nameMax        = 128 // bytes of a handler's name, a worker id, an error code
	messageMax     = 1024
	outputMaxUsual = 256 << 10
	receivedMax    = 8 << 20 // bytes of a message, as things are
)

type taskState int

const (
	queued   taskState = iota // received, no handler has seen it
	running                   // a handler runs
	finished                  // has an outcome that was not sent on this stream
	reported                  // sent, not acknowledged
	released                  // to be given back: no handler saw it
	taskStates
)

// A slot is free again once the report was sent: the next task is then already on its way while the
// server makes this one durable.
func (s taskState) takesSlot() bool { return s != reported && s != released }

func (s taskState) wasStarted() bool { return s == running || s == finished || s == reported }

type taskKey struct {
	uid   [16]byte
	fence int64
}

type lease struct {
	confirmed    time.Time // when it was certainly granted or extended
	length       time.Duration
	attemptUntil time.Time
	extendAt     time.Time // when to ask next
	extendSent   time.Time // the oldest question without an answer; zero: none
	lost         bool
	cancelled    bool
}

// end is when the handler has to have ended: 80 % of the confirmed lease, or the attempt's end.
func (l *lease) end() time.Time {
	end := l.confirmed.Add(l.length * leaseMargin / 100)
	if end.Before(l.attemptUntil) {
		return end
	}
	return l.attemptUntil
}

// entry is a task from its arrival until its report is acknowledged.
type entry struct {
	key     taskKey
	state   taskState
	place   *list.Element // in the list of its state
	handler *handlerState
	session *session // the one that speaks for it
	came    time.Time
	message *sagapb.Task // nil once the handler has returned
	lease   lease
	told    Stop // what its handler was told
	outcome outcome
	task    *Task // from when its handler starts until it has returned
}

func (e *entry) heldLease() *sagapb.HeldLease {
	return &sagapb.HeldLease{SagaUid: e.key.uid[:], Fence: e.key.fence}
}

type handlerState struct {
	name        string
	index       int
	maxInFlight int
	run         Handler
	inUse       int // tasks that take a slot: queued, running, not yet reported
	running     int // of those
	turn        int // the stream that was offered a slot last
	spareSince  time.Time
}

func (h *handlerState) slotsFree() int { return max(h.maxInFlight-h.inUse, 0) }

type pool struct {
	workerID    string
	instance    string // random for each process start
	handlers    []*handlerState
	byName      map[string]*handlerState
	tasks       map[taskKey]*entry
	sessions    []*session
	started     int // tasks that run or ran and have no ack
	running     int
	concurrency int // 0: as many as the handlers' slots
	takeNext    int
	random      func(below int64) int64 // [0, below)
	draining    bool
	drain       time.Duration
	drainUntil  time.Time
	tell        bool // a handler is to be told something
	awake       wakefulness
	stats       Stats
}

func newPool(workerID, instance string, random func(int64) int64) *pool {
	return &pool{workerID: workerID, instance: instance, random: random,
		byName: map[string]*handlerState{}, tasks: map[taskKey]*entry{}}
}

func (p *pool) addHandler(name string, maxInFlight int, run Handler) {
	h := &handlerState{name: name, index: len(p.handlers), maxInFlight: maxInFlight, run: run}
	p.handlers = append(p.handlers, h)
	p.byName[name] = h
}

// wakefulness says how late a message may have been read. A process that was stopped for a minute finds
// messages that came meanwhile, and must not take the moment at which it goes on for the moment at which
// they arrived.
type wakefulness struct {
	last, before  time.Time // the last beats
	distrust      time.Time // messages of before the gap may come until then
	sinceDistrust time.Time
}

// beat is called every 100 ms, and before since.
func (w *wakefulness) beat(now time.Time) {
	if !w.last.IsZero() && now.Sub(w.last) >= gapAfter {
		if !now.Before(w.distrust) {
			w.sinceDistrust = w.last
		}
		w.distrust = now.Add(distrustFor)
	}
	if w.before.IsZero() || now.Sub(w.last) >= spareAfter/2 {
		w.before, w.last = w.last, now
	}
}

// since is a time before the arrival of a message that was read now.
func (w *wakefulness) since(now time.Time) time.Time {
	w.beat(now)
	if now.Before(w.distrust) {
		return w.sinceDistrust
	}
	if w.before.IsZero() {
		return w.last
	}
	return w.before
}

// Slots. With one address each free slot is offered at once. With several, every stream is offered all
// slots that have been free for 100 ms, so that whichever node has work sends at once; a slot that
// becomes free while all are taken is offered to one stream, in turn. What came beyond maxInFlight waits
// for a second and is then given back, not started.

// slotFreed offers a slot to the next in turn of the streams with the fewest unused offers.
func (p *pool) slotFreed(h *handlerState) {
	if h.slotsFree() == 0 {
		return // of what came beyond the slots
	}
	var best *session
	for i := range p.sessions {
		s := p.sessions[(h.turn+1+i)%len(p.sessions)]
		if s.takesWork() && (best == nil || s.credits[h.index].unused() < best.credits[h.index].unused()) {
			best = s
		}
	}
	if best == nil {
		return
	}
	best.credits[h.index].offered++
	h.turn = best.number
	best.creditDue, best.nudged = true, true
}

func (p *pool) isAlone(session *session) bool {
	for _, s := range p.sessions {
		if s != session && s.takesWork() {
			return false
		}
	}
	return true
}

// offer says how many tasks of this handler the session may be offered beyond what it was.
func (p *pool) offer(s *session, h *handlerState, now time.Time) uint64 {
	more, unused := uint64(h.slotsFree()), s.credits[h.index].unused()
	if more > 0 && h.spareSince.IsZero() {
		h.spareSince = now
	}
	spare := more > 0 && now.Sub(h.spareSince) >= spareAfter
	if more > unused && (spare || p.isAlone(s)) {
		return more - unused
	}
	return 0
}

// The lists of tasks by state.

func (p *pool) unlist(e *entry) {
	e.session.lists[e.state].Remove(e.place)
	p.count(e, -1)
}

func (p *pool) list(e *entry, s *session, state taskState) {
	e.session, e.state = s, state
	e.place = s.lists[state].PushBack(e)
	p.count(e, 1)
	if e.handler.slotsFree() == 0 {
		e.handler.spareSince = time.Time{}
	}
}

func (p *pool) count(e *entry, by int) {
	if e.state.wasStarted() {
		p.started += by
	}
	if e.state == running {
		e.handler.running += by
		p.running += by
	}
	if e.state.takesSlot() {
		e.handler.inUse += by
	}
}

func (p *pool) add(e *entry, s *session, state taskState) {
	p.tasks[e.key] = e
	p.list(e, s, state)
}

func (p *pool) move(e *entry, s *session, state taskState) {
	freed := e.state.takesSlot() && !state.takesSlot()
	p.unlist(e)
	p.list(e, s, state)
	if freed {
		s.creditDue = true
		p.slotFreed(e.handler)
	}
}

func (p *pool) forget(e *entry) {
	delete(p.tasks, e.key)
	p.unlist(e)
	if e.state.takesSlot() {
		e.session.creditDue = true
		p.slotFreed(e.handler)
	}
}

// deputy is the session that does for another one that has no stream; nil: none has.
func (p *pool) deputy(session *session) *session {
	for i := 1; i < len(p.sessions); i++ {
		if other := p.sessions[(session.number+i)%len(p.sessions)]; other.takesWork() {
			return other
		}
	}
	return nil
}

// The handlers' side.

// take answers the next task to run, nil if there is none.
func (p *pool) take(now time.Time) *entry {
	if p.concurrency > 0 && p.running >= p.concurrency {
		return nil
	}
	for i := 0; i < len(p.sessions) && p.started < startedMax; i++ {
		s := p.sessions[(p.takeNext+i)%len(p.sessions)]
		if e := s.firstToRun(now); e != nil {
			p.takeNext = s.number + 1
			p.move(e, s, running)
			p.stats.TasksStarted++
			return e
		}
	}
	return nil
}

func (p *pool) finish(e *entry, o outcome, now time.Time) {
	e.outcome, e.message, e.task = o, nil, nil
	if p.draining {
		p.drainUntil = now.Add(p.drain)
	}
	p.move(e, e.session, finished)
	e.session.nudged = true
}

func (p *pool) stopOf(e *entry, now time.Time) Stop {
	switch {
	case e.lease.lost || !now.Before(e.lease.end()):
		return StopLost
	case e.lease.cancelled:
		return StopCancelled
	case p.draining:
		return StopDraining
	}
	return StopNone
}

// toTell lists the running tasks whose handlers have to be told a new reason to stop.
func (p *pool) toTell(now time.Time) []*entry {
	var due []*entry
	p.tell = false
	for _, s := range p.sessions {
		for e := range entries(s.lists[running]) {
			// LOST is the last word: a lease that is given again does not undo it.
			if stop := p.stopOf(e, now); stop > e.told {
				e.told = stop
				due = append(due, e)
			}
		}
	}
	return due
}

func (p *pool) startDrain(now time.Time) {
	if p.draining {
		return
	}
	p.draining, p.tell = true, true
	p.drainUntil = now.Add(p.drain)
	for _, s := range p.sessions {
		s.releaseQueue()
		s.nudged = true
	}
}

// isDrained: nothing runs, and every report is acknowledged or was waited for long enough.
func (p *pool) isDrained(now time.Time) bool {
	if !p.draining {
		return false
	}
	settled, said := true, true
	for _, s := range p.sessions {
		if s.lists[queued].Len()+s.lists[running].Len() > 0 {
			return false
		}
		if !s.isSettled() {
			settled = false
		}
		if s.phase != offline && (!s.drainSaid || now.Sub(s.drainSaidAt) < drainLinger) {
			said = false
		}
	}
	return (settled && said) || !now.Before(p.drainUntil)
}
