package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"sagad.dev/go/sagapb"
)

// What a session says: one message at a time, the most urgent first.

const sdkName = "sagad-go/0.1.0"

func (s *session) nextHello() *sagapb.WorkerMessage {
	p := s.pool
	hello := &sagapb.Hello{WorkerId: p.workerID, Instance: p.instance, Sdk: sdkName,
		OnlyStream: len(p.sessions) == 1}
	for _, h := range p.handlers {
		hello.Handlers = append(hello.Handlers,
			&sagapb.Subscription{Handler: h.name, MaxInFlight: uint32(h.maxInFlight)})
	}
	// Over all streams. What was started always fits: take. What waits is held, too; what is too much
	// for one Hello is given back there.
	for _, state := range []taskState{running, finished, reported, queued} {
		for _, other := range p.sessions {
			for e := range entries(other.lists[state]) {
				if len(hello.Held) < leasesMax {
					hello.Held = append(hello.Held, e.heldLease())
				} else {
					other.nudged = true
					p.move(e, other, released)
				}
			}
		}
	}
	return &sagapb.WorkerMessage{Command: &sagapb.WorkerMessage_Hello{Hello: hello}}
}

func reportOf(e *entry) *sagapb.TaskReport {
	o := &e.outcome
	r := &sagapb.TaskReport{SagaUid: e.key.uid[:], Fence: e.key.fence, Outcome: o.kind,
		Output: o.output, Ours: o.ours, ErrorCode: o.code, ErrorMessage: o.message}
	if o.retryAfter > 0 {
		r.RetryAfter = durationpb.New(o.retryAfter)
	}
	return r
}

func (s *session) nextReports() *sagapb.WorkerMessage {
	report := &sagapb.Report{}
	bytes := 0
	for e := range entries(s.lists[finished]) {
		bytes += len(e.outcome.output)
		if n := len(report.Reports); n == reportsMax || (n > 0 && bytes > reportBytes) {
			break
		}
		report.Reports = append(report.Reports, reportOf(e))
		s.pool.move(e, s, reported)
	}
	return &sagapb.WorkerMessage{Command: &sagapb.WorkerMessage_Report{Report: report}}
}

func (s *session) nextRelease() *sagapb.WorkerMessage {
	release := &sagapb.Release{}
	for e := range entries(s.lists[released]) {
		if len(release.Leases) == leasesMax {
			break
		}
		release.Leases = append(release.Leases, e.heldLease())
		s.pool.forget(e)
	}
	return &sagapb.WorkerMessage{Command: &sagapb.WorkerMessage_Release{Release: release}}
}

// nextExtend asks for the leases whose third is over, and notes when the next one is.
func (s *session) nextExtend(now time.Time) *sagapb.WorkerMessage {
	extend := &sagapb.Extend{}
	s.extendCheck = time.Time{}
	for _, state := range []taskState{running, queued} {
		for e := range entries(s.lists[state]) {
			l := &e.lease
			if l.lost || !now.Before(l.attemptUntil) {
				continue
			}
			if !now.Before(l.extendAt) && len(extend.Leases) < leasesMax {
				extend.Leases = append(extend.Leases, e.heldLease())
				l.extendAt = now.Add(max(l.length/3, extendEvery))
				if l.extendSent.IsZero() {
					l.extendSent = now
				}
			}
			s.extendNoLaterThan(l.extendAt)
		}
	}
	if len(extend.Leases) == 0 {
		return nil
	}
	return &sagapb.WorkerMessage{Command: &sagapb.WorkerMessage_Extend{Extend: extend}}
}

func (s *session) nextCredit(now time.Time, repeat bool) *sagapb.WorkerMessage {
	message := &sagapb.Credit{}
	tooMany := s.lists[reported].Len() >= unackedMax
	paused := s.pool.draining || s.serverDrains || tooMany
	for _, h := range s.pool.handlers {
		c := &s.credits[h.index]
		if !paused {
			c.offered += s.pool.offer(s, h, now)
		}
		worth := !paused && c.isWorthAMessage(h.maxInFlight)
		if !repeat && !worth {
			continue
		}
		if !paused {
			c.granted = c.offered
		}
		message.Handlers = append(message.Handlers, &sagapb.Credit_PerHandler{Handler: h.name, Total: c.granted})
	}
	s.creditDue = tooMany
	if len(message.Handlers) == 0 {
		return nil
	}
	return &sagapb.WorkerMessage{Command: &sagapb.WorkerMessage_Credit{Credit: message}}
}

// share: what came beyond the slots and has waited for long enough is given back; offers are looked at.
func (s *session) share(now time.Time) {
	for e := range entries(s.lists[queued]) {
		if now.Sub(e.came) < surplusAfter {
			break
		}
		if e.handler.inUse > e.handler.maxInFlight {
			s.pool.move(e, s, released)
		}
	}
	s.creditDue = true
	s.shareCheck = now.Add(spareAfter)
}

// next is the next message to send, and taken as sent; nil: none now.
func (s *session) next(now time.Time) *sagapb.WorkerMessage {
	if s.phase == offline {
		return nil
	}
	m := s.mostUrgent(now)
	if m != nil {
		s.sent = now
	}
	return m
}

func (s *session) mostUrgent(now time.Time) *sagapb.WorkerMessage {
	if len(s.pool.sessions) > 1 && !now.Before(s.shareCheck) {
		s.share(now)
	}
	if !s.helloSaid {
		s.helloSaid = true
		return s.nextHello()
	}
	if s.pool.draining && !s.drainSaid {
		s.drainSaid, s.drainSaidAt = true, now
		return &sagapb.WorkerMessage{Command: &sagapb.WorkerMessage_Drain{Drain: &sagapb.Drain{}}}
	}
	if !s.extendCheck.IsZero() && !now.Before(s.extendCheck) {
		if m := s.nextExtend(now); m != nil {
			return m
		}
	}
	if s.lists[finished].Len() > 0 {
		return s.nextReports()
	}
	if s.lists[released].Len() > 0 {
		return s.nextRelease()
	}
	repeat := now.Sub(s.sent) >= idleAfter
	if s.creditDue || repeat {
		return s.nextCredit(now, repeat)
	}
	return nil
}
