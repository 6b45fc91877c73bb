package worker

import (
	"container/list"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"sagad.dev/go/sagapb"
)

const (
	unackedMax  = 4096    // no new credit beyond it
	reportsMax  = 512     // in one Report
	reportBytes = 3 << 20 // of outputs in one Report
	leasesMax   = startedMax
	idleAfter   = 10 * time.Second // Credit is repeated when nothing else was sent
	silenceMax  = 35 * time.Second // without anything from the server the stream is dead
	welcomeMax  = 10 * time.Second // the same before Welcome
	backoffMin  = 100 * time.Millisecond
	backoffMax  = 2 * time.Second // the shortest lease, 5 s, is not to run out by it
	steadyAfter = 5 * time.Second // a stream that lived so long ends a row of failures
	extendEvery = 500 * time.Millisecond
	durationMax = 366 * 24 * time.Hour
	secondsMax  = 253402300799 // the end of year 9999
)

type credit struct { // of a handler, on this stream: totals that only grow
	received uint64 // tasks
	offered  uint64 // that the pool lets it have
	granted  uint64 // that were announced
}

func (c *credit) unused() uint64 { return c.offered - c.received }

// isWorthAMessage: a quarter of the slots is said at once, and so is anything while the server has less
// than that left. Each task of a busy worker would otherwise cost a message of its own.
func (c *credit) isWorthAMessage(maxInFlight int) bool {
	quarter, more, left := uint64(maxInFlight/4), c.offered-c.granted, c.granted-c.received
	return more > 0 && (more >= quarter || left < quarter)
}

type phase int

const (
	offline phase = iota
	opening       // Hello is to be sent, or Welcome has not come
	online
)

// session is one stream to one address: what was said on it, what to say next, and what a message of
// the server means. A task belongs to the session that speaks for it: the one that it came on, or another
// one once that has lost its stream.
//
// Tasks of a stream that died and that no handler has seen are never started. They are missing in the
// next Hello to that address, which tells the server; if the worker has other streams they are also given
// back on one of those, for the node that takes over.
type session struct {
	pool    *pool
	number  int // in the pool
	credits []credit
	lists   [taskStates]*list.List

	phase        phase
	helloSaid    bool
	creditDue    bool
	drainSaid    bool
	serverDrains bool // it asked us to go elsewhere
	nudged       bool // it got something to say from outside; whoever wakes it resets this
	opened       time.Time
	welcomed     time.Time
	heard        time.Time
	sent         time.Time
	drainSaidAt  time.Time
	serverUntil  time.Time // serverDrains: what still runs is reported elsewhere from then on
	extendCheck  time.Time // no lease needs extending before; zero: none at all
	shareCheck   time.Time // slots and surplus are not looked at before
	failures     int       // in a row
	reconnect    time.Time // offline: when to try again
}

func (p *pool) addSession() *session {
	s := &session{pool: p, number: len(p.sessions)}
	for i := range s.lists {
		s.lists[i] = list.New()
	}
	p.sessions = append(p.sessions, s)
	return s
}

// entries may be moved while they are walked through.
func entries(l *list.List) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for at := l.Front(); at != nil; {
			next := at.Next()
			if !yield(at.Value.(*entry)) {
				return
			}
			at = next
		}
	}
}

func (s *session) takesWork() bool { return s.phase == online && !s.serverDrains }

// isSettled: it has nothing more to say about what has ended.
func (s *session) isSettled() bool {
	return s.lists[finished].Len()+s.lists[reported].Len()+s.lists[released].Len() == 0
}

func (s *session) moveAll(from taskState, to *session, state taskState) {
	for e := range entries(s.lists[from]) {
		s.pool.move(e, to, state)
	}
}

func (s *session) releaseQueue() { s.moveAll(queued, s, released) }

// firstToRun is the first task that may run now.
func (s *session) firstToRun(now time.Time) *entry {
	for e := range entries(s.lists[queued]) {
		if !now.Before(e.lease.end()) {
			s.pool.move(e, s, released) // waited for too long: certainly not started
			s.nudged = true
		} else if e.handler.running < e.handler.maxInFlight {
			return e
		}
	}
	return nil
}

// The life of a stream.

// extendAll: nobody knows what became of what was asked on another stream.
func (s *session) extendAll(now time.Time) {
	for e := range entries(s.lists[running]) {
		e.lease.extendAt, e.lease.extendSent = now, time.Time{}
	}
	s.extendCheck = now
}

// handOver: this one has no stream; that one speaks for its tasks from now on.
func (s *session) handOver(to *session, now time.Time) {
	if s.lists[running].Len() > 0 {
		to.extendCheck = now
	}
	s.extendAll(now)
	s.moveAll(running, to, running)
	s.moveAll(finished, to, finished)
	s.moveAll(released, to, released)
	to.nudged = true
}

// open: a stream was opened; Hello is next.
func (s *session) open(now time.Time) {
	s.phase = opening
	s.helloSaid, s.drainSaid, s.serverDrains = false, false, false
	s.opened, s.heard, s.sent = now, now, now
	s.creditDue = true
	s.credits = make([]credit, len(s.pool.handlers))
	s.pool.awake.beat(now) // before whatever comes on it
	s.extendAll(now)
}

func (s *session) backOff(wasSteady bool, now time.Time) {
	if wasSteady {
		s.failures = 0
	}
	longest := min(2*backoffMin<<min(s.failures, 6), backoffMax)
	s.failures++
	wait := backoffMin + time.Duration(s.pool.random(int64(longest-backoffMin)+1))
	s.reconnect = now.Add(wait)
}

// lost: the stream ended, or could not be opened; `reconnect` says when to try again.
func (s *session) lost(now time.Time) {
	steady := s.phase == online && now.Sub(s.welcomed) >= steadyAfter
	s.phase = offline
	s.releaseQueue()
	s.moveAll(reported, s, finished)
	if deputy := s.pool.deputy(s); deputy != nil {
		s.handOver(deputy, now)
	}
	if len(s.pool.sessions) == 1 { // its next Hello tells
		for e := range entries(s.lists[released]) {
			s.pool.forget(e)
		}
	}
	s.backOff(steady, now)
}

// isOver: should this stream be ended, being silent for too long, or since the server goes away and
// nothing holds us?
func (s *session) isOver(now time.Time) bool {
	switch {
	case s.phase == offline:
		return false
	case s.phase == opening && now.Sub(s.opened) >= welcomeMax:
		return true
	case now.Sub(s.heard) >= silenceMax:
		return true
	}
	// The server goes away. What still runs is reported to another one, or to the next one here.
	return s.serverDrains && s.isSettled() &&
		(s.lists[running].Len() == 0 || !now.Before(s.serverUntil))
}

// isWanted: is a new stream of any use? Not for a drain that another one can carry out.
func (s *session) isWanted() bool { return !s.pool.draining || s.pool.deputy(s) == nil }

// What the server says.

// durationOf: false if it is absent, negative or no duration. Longer than a year counts as a year.
func durationOf(d *durationpb.Duration) (time.Duration, bool) {
	if d == nil || d.Seconds < 0 || d.Nanos < 0 || d.Nanos > 999999999 {
		return 0, false
	}
	if d.Seconds >= int64(durationMax/time.Second) {
		return durationMax, true
	}
	return d.AsDuration(), true
}

func uidText(uid [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", uid[:4], uid[4:6], uid[6:8], uid[8:10], uid[10:])
}

func keyOf(uid []byte, fence int64, of string) (taskKey, error) {
	if len(uid) != 16 {
		return taskKey{}, fmt.Errorf("the server sent a malformed %s: saga_uid is of %d bytes", of, len(uid))
	}
	return taskKey{uid: [16]byte(uid), fence: fence}, nil
}

func isWellFormed(t *sagapb.Task) bool {
	start := t.GetSagaStartTime()
	return t != nil && t.Fence > 0 && start != nil && start.Seconds <= secondsMax &&
		start.Seconds >= -secondsMax && t.Operation >= sagapb.OperationKind_OPERATION_KIND_ACTION &&
		t.Operation <= sagapb.OperationKind_OPERATION_KIND_PROBE
}

func (s *session) receiveTask(t *sagapb.Task, since, now time.Time) error {
	key, err := keyOf(t.GetSagaUid(), t.GetFence(), "task")
	if err != nil {
		return err
	}
	length, ok := durationOf(t.GetLease())
	attempt, attemptOK := durationOf(t.GetAttemptRemaining())
	if !ok || length <= 0 || !attemptOK || !isWellFormed(t) {
		return errors.New("the server sent a malformed task")
	}
	h := s.pool.byName[t.Handler]
	if h == nil {
		return fmt.Errorf("the server sent a task of a handler that is not ours: %q", t.Handler)
	}
	c := &s.credits[h.index]
	if c.received >= c.granted {
		return fmt.Errorf("the server sent more tasks of %s than credit", h.name)
	}
	c.received++
	s.creditDue = true // what was kept back may be worth saying now
	if s.pool.tasks[key] != nil {
		return nil // we have it: nothing to do twice
	}
	e := &entry{key: key, handler: h, came: now, message: t, lease: lease{
		confirmed: since, length: length, attemptUntil: since.Add(attempt),
		extendAt: since.Add(length / 3)}}
	s.extendNoLaterThan(e.lease.extendAt)
	state := queued
	if s.pool.draining || s.serverDrains {
		state = released
	}
	s.pool.add(e, s, state)
	return nil
}

func (s *session) extendNoLaterThan(at time.Time) {
	if s.extendCheck.IsZero() || at.Before(s.extendCheck) {
		s.extendCheck = at
	}
}

// problem is what was wrong with the output of an outcome that was accepted.
type problem struct {
	entry *entry
	text  string
}

func (s *session) receiveAck(ack *sagapb.Ack, problems *[]problem) error {
	key, err := keyOf(ack.GetSagaUid(), ack.GetFence(), "ack")
	if err != nil {
		return err
	}
	e := s.pool.tasks[key]
	if e == nil || (e.state != reported && e.state != finished) {
		return nil // acknowledged before
	}
	switch ack.Result {
	case sagapb.Ack_RESULT_ACCEPTED:
		s.pool.stats.ReportsAccepted++
	case sagapb.Ack_RESULT_DUPLICATE:
		s.pool.stats.ReportsDuplicate++
	case sagapb.Ack_RESULT_STALE:
		s.pool.stats.ReportsStale++
	default:
		return errors.New("the server sent an ack without a result")
	}
	if ack.Problem != "" {
		*problems = append(*problems, problem{e, ack.Problem})
	}
	s.pool.forget(e)
	return nil
}

func (s *session) receiveExtended(x *sagapb.Extended_Lease) error {
	key, err := keyOf(x.GetSagaUid(), x.GetFence(), "extension")
	if err != nil {
		return err
	}
	length, ok := durationOf(x.Lease)
	if x.Lease != nil && !ok {
		return errors.New("the server sent a malformed extension")
	}
	e := s.pool.tasks[key]
	if e == nil || (e.state != queued && e.state != running) {
		return nil
	}
	if length == 0 {
		s.pool.stats.LeasesLost++
		e.lease.lost, s.pool.tell = true, true
		if e.state == queued {
			s.pool.forget(e)
		}
	} else if !e.lease.extendSent.IsZero() {
		// Counted from when we asked: the server cannot have read it before.
		e.lease.confirmed, e.lease.length = e.lease.extendSent, length
		e.lease.extendSent = time.Time{}
	}
	return nil
}

func (s *session) receiveCancel(hint *sagapb.CancelHint) error {
	key, err := keyOf(hint.GetSagaUid(), hint.GetFence(), "cancel hint")
	if err != nil {
		return err
	}
	e := s.pool.tasks[key]
	if e == nil {
		return nil
	}
	e.lease.cancelled, s.pool.tell = true, true
	if e.state == queued {
		e.session.nudged = true
		s.pool.move(e, e.session, released)
	}
	return nil
}

func (s *session) receiveDrain(d *sagapb.DrainRequested, now time.Time) {
	if s.serverDrains {
		return
	}
	grace, _ := durationOf(d.GetGrace()) // none: at once
	s.serverDrains = true
	s.serverUntil = now.Add(grace / 2)
	s.releaseQueue()
}

// receiveWelcome: it speaks for what those without a stream left behind.
func (s *session) receiveWelcome(now time.Time) {
	if s.phase != opening {
		return
	}
	s.phase = online
	s.welcomed = now
	s.pool.stats.Connects++
	for _, other := range s.pool.sessions {
		if other.phase != online {
			other.handOver(s, now)
		}
	}
}

func each[T any](items []T, receive func(T) error) error {
	for _, item := range items {
		if err := receive(item); err != nil {
			return err
		}
	}
	return nil
}

// receive: a message came in at or after `since`. An error (garbage, more tasks than credit) means that
// the stream is not to be trusted: end it.
func (s *session) receive(m *sagapb.ServerMessage, since, now time.Time) ([]problem, error) {
	s.heard = now
	var problems []problem
	var err error
	switch c := m.GetCommand().(type) {
	case *sagapb.ServerMessage_Welcome:
		s.receiveWelcome(now)
	case *sagapb.ServerMessage_Tasks:
		err = each(c.Tasks.GetTasks(), func(t *sagapb.Task) error { return s.receiveTask(t, since, now) })
	case *sagapb.ServerMessage_Acks:
		err = each(c.Acks.GetAcks(), func(a *sagapb.Ack) error { return s.receiveAck(a, &problems) })
	case *sagapb.ServerMessage_Extended:
		err = each(c.Extended.GetLeases(), s.receiveExtended)
	case *sagapb.ServerMessage_CancelHint:
		err = s.receiveCancel(c.CancelHint)
	case *sagapb.ServerMessage_DrainRequested:
		s.receiveDrain(c.DrainRequested, now)
	default: // Tick, or a word of a newer server: that it speaks is what counts
	}
	return problems, err
}
