package worker

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sagad.dev/go/sagapb"
)

// rig plays a worker's turns with the time in its hand.
type rig struct {
	*testing.T
	pool *pool
	now  time.Time
}

func newRig(t *testing.T, streams int, handlers ...int) *rig {
	r := &rig{T: t, now: time.Unix(1e9, 0), pool: newPool("w-1", "instance-1", func(int64) int64 { return 0 })}
	r.pool.drain = 30 * time.Second
	for i, most := range handlers {
		r.pool.addHandler(fmt.Sprintf("h%d", i), most, nil)
	}
	for range streams {
		r.pool.addSession()
	}
	return r
}

func (r *rig) after(d time.Duration) { r.now = r.now.Add(d) }

// say answers everything that a session has to say now.
func (r *rig) say(s *session) []*sagapb.WorkerMessage {
	var all []*sagapb.WorkerMessage
	for m := s.next(r.now); m != nil; m = s.next(r.now) {
		if all = append(all, m); len(all) > 100 {
			r.Fatal("it never stops talking")
		}
	}
	return all
}

func (r *rig) hear(s *session, m *sagapb.ServerMessage) {
	r.Helper()
	if _, err := s.receive(m, r.now, r.now); err != nil {
		r.Fatal(err)
	}
}

func welcome() *sagapb.ServerMessage {
	return &sagapb.ServerMessage{Command: &sagapb.ServerMessage_Welcome{Welcome: &sagapb.Welcome{}}}
}

func uidOf(fence int64) []byte { return append(make([]byte, 15), byte(fence)) }

func aTask(handler string, fence int64, lease, attempt time.Duration) *sagapb.Task {
	return &sagapb.Task{SagaUid: uidOf(fence), Fence: fence, Handler: handler, Try: 1,
		SagaStartTime: timestamppb.New(time.Unix(5, 0)), Lease: durationpb.New(lease),
		AttemptRemaining: durationpb.New(attempt), Operation: Action}
}

func tasks(all ...*sagapb.Task) *sagapb.ServerMessage {
	return &sagapb.ServerMessage{Command: &sagapb.ServerMessage_Tasks{Tasks: &sagapb.Tasks{Tasks: all}}}
}

func ack(fence int64, result sagapb.Ack_Result) *sagapb.ServerMessage {
	return &sagapb.ServerMessage{Command: &sagapb.ServerMessage_Acks{Acks: &sagapb.Acks{
		Acks: []*sagapb.Ack{{SagaUid: uidOf(fence), Fence: fence, Result: result}}}}}
}

func extended(fence int64, lease time.Duration) *sagapb.ServerMessage {
	return &sagapb.ServerMessage{Command: &sagapb.ServerMessage_Extended{Extended: &sagapb.Extended{
		Leases: []*sagapb.Extended_Lease{{SagaUid: uidOf(fence), Fence: fence, Lease: durationpb.New(lease)}}}}}
}

func cancelHint(fence int64) *sagapb.ServerMessage {
	return &sagapb.ServerMessage{Command: &sagapb.ServerMessage_CancelHint{
		CancelHint: &sagapb.CancelHint{SagaUid: uidOf(fence), Fence: fence}}}
}

// connect opens a stream up to its first credit.
func (r *rig) connect(s *session) {
	s.open(r.now)
	r.say(s)
	r.hear(s, welcome())
	r.say(s)
}

func (r *rig) run(s *session, fences ...int64) []*entry {
	r.Helper()
	var all []*entry
	for _, fence := range fences {
		r.hear(s, tasks(aTask("h0", fence, 9*time.Second, time.Minute)))
		e := r.pool.take(r.now)
		if e == nil || e.key.fence != fence {
			r.Fatalf("task %d does not run", fence)
		}
		all = append(all, e)
	}
	return all
}

func (r *rig) finish(e *entry) {
	r.pool.finish(e, outcome{kind: sagapb.Outcome_OUTCOME_DONE}, r.now)
}

// words is what was said, in short: "hello[1 2] credit[h0=4] report[1] extend[1] release[1] drain".
func words(all []*sagapb.WorkerMessage) string {
	text := ""
	for _, m := range all {
		if text != "" {
			text += " "
		}
		fences := func(leases []*sagapb.HeldLease) string {
			var list []int64
			for _, l := range leases {
				list = append(list, l.Fence)
			}
			return fmt.Sprint(list)
		}
		switch c := m.Command.(type) {
		case *sagapb.WorkerMessage_Hello:
			text += "hello" + fences(c.Hello.Held)
		case *sagapb.WorkerMessage_Credit:
			text += "credit"
			for _, h := range c.Credit.Handlers {
				text += fmt.Sprintf("[%s=%d]", h.Handler, h.Total)
			}
		case *sagapb.WorkerMessage_Report:
			text += "report"
			for _, report := range c.Report.Reports {
				text += fmt.Sprintf("[%d]", report.Fence)
			}
		case *sagapb.WorkerMessage_Extend:
			text += "extend" + fences(c.Extend.Leases)
		case *sagapb.WorkerMessage_Release:
			text += "release" + fences(c.Release.Leases)
		case *sagapb.WorkerMessage_Drain:
			text += "drain"
		}
	}
	return text
}

func (r *rig) expect(s *session, want string) {
	r.Helper()
	if got := words(r.say(s)); got != want {
		r.Errorf("said %q, wanted %q", got, want)
	}
}

func TestCreditIsWhatIsFreeAndGrowsWithReports(t *testing.T) {
	r := newRig(t, 1, 4, 2)
	s := r.pool.sessions[0]
	s.open(r.now)
	r.expect(s, "hello[] credit[h0=4][h1=2]")
	r.hear(s, welcome())
	e := r.run(s, 1)[0]
	r.expect(s, "") // its slot is taken
	r.finish(e)
	r.expect(s, "report[1] credit[h0=5]") // free again once the report is sent, before the ack
	r.hear(s, ack(1, sagapb.Ack_RESULT_ACCEPTED))
	r.expect(s, "")
	if len(r.pool.tasks) != 0 || r.pool.started != 0 || r.pool.stats.ReportsAccepted != 1 {
		t.Errorf("something is left: %d tasks, %d started", len(r.pool.tasks), r.pool.started)
	}
}

func TestCreditPausesWithTooManyReportsUnacked(t *testing.T) {
	r := newRig(t, 1, 8000)
	s := r.pool.sessions[0]
	r.connect(s)
	for fence := int64(1); fence <= unackedMax; fence++ {
		task := aTask("h0", fence, 9*time.Second, time.Minute)
		task.SagaUid = append(make([]byte, 8), byte(fence>>16), byte(fence>>8), byte(fence), 0, 0, 0, 0, 0)
		r.hear(s, tasks(task))
		r.finish(r.pool.take(r.now))
	}
	said := r.say(s)
	for _, m := range said {
		if m.GetCredit() != nil {
			t.Fatalf("credit although %d reports wait", s.lists[reported].Len())
		}
	}
	if len(said) != unackedMax/reportsMax {
		t.Errorf("%d reports, wanted %d", len(said), unackedMax/reportsMax)
	}
}

func TestWhatTheServerSaysIsChecked(t *testing.T) {
	good := func() *sagapb.Task { return aTask("h0", 1, time.Second, time.Second) }
	changed := func(change func(*sagapb.Task)) *sagapb.ServerMessage {
		task := good()
		change(task)
		return tasks(task)
	}
	for name, message := range map[string]*sagapb.ServerMessage{
		"uid":             changed(func(t *sagapb.Task) { t.SagaUid = t.SagaUid[1:] }),
		"fence":           changed(func(t *sagapb.Task) { t.Fence = 0 }),
		"no lease":        changed(func(t *sagapb.Task) { t.Lease = nil }),
		"lease of 0":      changed(func(t *sagapb.Task) { t.Lease = durationpb.New(0) }),
		"negative lease":  changed(func(t *sagapb.Task) { t.Lease = durationpb.New(-1) }),
		"attempt":         changed(func(t *sagapb.Task) { t.AttemptRemaining = nil }),
		"nanos":           changed(func(t *sagapb.Task) { t.Lease = &durationpb.Duration{Nanos: 1e9} }),
		"start":           changed(func(t *sagapb.Task) { t.SagaStartTime = nil }),
		"start in 10000":  changed(func(t *sagapb.Task) { t.SagaStartTime.Seconds = secondsMax + 1 }),
		"operation":       changed(func(t *sagapb.Task) { t.Operation = 4 }),
		"foreign handler": changed(func(t *sagapb.Task) { t.Handler = "h9" }),
		"no task":         tasks(nil),
		"over credit":     tasks(good(), aTask("h0", 2, time.Second, time.Second), aTask("h0", 3, time.Second, time.Second)),
		"ack's uid":       {Command: &sagapb.ServerMessage_Acks{Acks: &sagapb.Acks{Acks: []*sagapb.Ack{{}}}}},
		"extension's uid": {Command: &sagapb.ServerMessage_Extended{Extended: &sagapb.Extended{Leases: []*sagapb.Extended_Lease{{}}}}},
		"extension":       extended(1, -1),
		"hint":            {Command: &sagapb.ServerMessage_CancelHint{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, 2)
			s := r.pool.sessions[0]
			r.connect(s)
			if _, err := s.receive(message, r.now, r.now); err == nil {
				t.Error("it was taken")
			}
		})
	}
	r := newRig(t, 1, 2)
	s := r.pool.sessions[0]
	r.connect(s)
	r.hear(s, &sagapb.ServerMessage{}) // a word of a newer server
	e := r.run(s, 1)[0]
	r.finish(e)
	r.say(s)
	if _, err := s.receive(ack(1, 0), r.now, r.now); err == nil {
		t.Error("an ack without a result was taken")
	}
}

func TestADoubleIsNotRunTwice(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	r.run(s, 1)
	r.hear(s, tasks(aTask("h0", 1, time.Second, time.Minute)))
	if e := r.pool.take(r.now); e != nil {
		t.Error("it runs twice")
	}
}

func TestLeaseGoesOnFromWhenItWasAskedFor(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	e := r.run(s, 1)[0] // 9 s
	r.after(2999 * time.Millisecond)
	r.expect(s, "")
	r.after(time.Millisecond)
	r.expect(s, "extend[1]")
	asked := r.now
	r.after(2 * time.Second)
	r.hear(s, extended(1, 9*time.Second))
	if want := asked.Add(7200 * time.Millisecond); !e.lease.end().Equal(want) {
		t.Errorf("it ends at %v, wanted %v", e.lease.end(), want)
	}
	r.after(time.Second)
	r.expect(s, "extend[1]") // a third after the last question
	r.hear(s, extended(1, 9*time.Second))
	r.hear(s, extended(1, time.Hour)) // nobody asked
	if e.lease.length != 9*time.Second {
		t.Error("an answer to no question counts")
	}
}

func TestStopReasons(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*rig, *session)
		want []Stop
	}{
		"80 % of the lease":        {func(r *rig, _ *session) { r.after(7200 * time.Millisecond) }, []Stop{StopLost}},
		"just before":              {func(r *rig, _ *session) { r.after(7199 * time.Millisecond) }, nil},
		"lost":                     {func(r *rig, s *session) { r.hear(s, extended(1, 0)) }, []Stop{StopLost}},
		"cancelled":                {func(r *rig, s *session) { r.hear(s, cancelHint(1)) }, []Stop{StopCancelled}},
		"draining":                 {func(r *rig, _ *session) { r.pool.startDrain(r.now) }, []Stop{StopDraining}},
		"a foreign fence":          {func(r *rig, s *session) { r.hear(s, cancelHint(7)) }, nil},
		"the strongest of several": {func(r *rig, s *session) { r.pool.startDrain(r.now); r.hear(s, cancelHint(1)) }, []Stop{StopCancelled}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, 4)
			s := r.pool.sessions[0]
			r.connect(s)
			r.run(s, 1)
			c.do(r, s)
			var got []Stop
			for range 2 { // each is told once
				for _, e := range r.pool.toTell(r.now) {
					got = append(got, e.told)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("told %v, wanted %v", got, c.want)
			}
		})
	}
}

func TestAttemptTimeEndsTheLease(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	r.hear(s, tasks(aTask("h0", 1, 9*time.Second, 4*time.Second)))
	e := r.pool.take(r.now)
	r.after(4 * time.Second)
	if r.pool.stopOf(e, r.now) != StopLost {
		t.Error("it goes on after the attempt's end")
	}
	r.expect(s, "") // and is not extended any more
}

func TestReconnectTellsWhatIsHeld(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	e := r.run(s, 1, 2)
	r.hear(s, tasks(aTask("h0", 3, 9*time.Second, time.Minute))) // queued: no handler saw it
	r.finish(e[0])
	r.expect(s, "report[1] credit[h0=5]")
	s.lost(r.now)
	r.after(time.Second)
	s.open(r.now)
	// The report is said again, the lease of what runs asked for at once; 3 is missing.
	r.expect(s, "hello[2 1] extend[2] report[1] credit[h0=3]")
	r.hear(s, ack(1, sagapb.Ack_RESULT_DUPLICATE))
	if r.pool.stats.ReportsDuplicate != 1 {
		t.Error("not counted")
	}
}

func TestAnotherStreamSpeaksForALostOne(t *testing.T) {
	r := newRig(t, 2, 4)
	a, b := r.pool.sessions[0], r.pool.sessions[1]
	r.connect(a)
	r.connect(b)
	r.after(spareAfter)
	r.say(a)
	e := r.run(a, 1, 2)
	r.hear(a, tasks(aTask("h0", 3, 9*time.Second, time.Minute)))
	r.finish(e[0])
	a.lost(r.now)
	r.expect(b, "extend[2] report[1] release[3] credit[h0=3]")
	r.hear(b, ack(1, sagapb.Ack_RESULT_ACCEPTED))
	r.finish(e[1])
	if got := words(r.say(b)); got != "report[2] credit[h0=4]" && got != "report[2]" {
		t.Errorf("said %q", got)
	}
}

func TestWithoutAnyStreamTheFirstOneSpeaks(t *testing.T) {
	r := newRig(t, 2, 4)
	a, b := r.pool.sessions[0], r.pool.sessions[1]
	r.connect(a)
	e := r.run(a, 1)
	a.lost(r.now)
	r.finish(e[0])
	b.open(r.now)
	r.expect(b, "hello[1] credit[h0=3]")
	r.hear(b, welcome())
	r.expect(b, "report[1] credit[h0=4]")
}

func TestSlotsAreOfferedInTurn(t *testing.T) {
	r := newRig(t, 2, 2)
	a, b := r.pool.sessions[0], r.pool.sessions[1]
	a.open(r.now)
	b.open(r.now)
	r.say(a)
	r.say(b)
	r.hear(a, welcome())
	r.hear(b, welcome())
	r.after(spareAfter)
	r.say(a)
	r.say(b)
	if a.credits[0].granted != 2 || b.credits[0].granted != 2 {
		t.Fatalf("spare slots: %d and %d", a.credits[0].granted, b.credits[0].granted)
	}
	// Both use their offers: never more than two run, what is beyond is given back after a second.
	e := r.run(a, 1, 2)
	r.hear(b, tasks(aTask("h0", 3, 9*time.Second, time.Minute), aTask("h0", 4, 9*time.Second, time.Minute)))
	if r.pool.take(r.now) != nil {
		t.Error("a third one runs")
	}
	r.after(surplusAfter)
	r.expect(b, "release[3 4]")
	// One slot after the other is offered to one of them.
	r.finish(e[0])
	r.say(a)
	r.finish(e[1])
	r.say(a)
	r.say(b)
	if a.credits[0].granted+b.credits[0].granted != 6 {
		t.Errorf("granted %d and %d", a.credits[0].granted, b.credits[0].granted)
	}
}

func TestDrain(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	e := r.run(s, 1)
	r.hear(s, tasks(aTask("h0", 2, 9*time.Second, time.Minute)))
	r.pool.startDrain(r.now)
	r.expect(s, "drain release[2]")
	r.hear(s, tasks(aTask("h0", 3, 9*time.Second, time.Minute))) // was on its way
	r.expect(s, "release[3]")
	r.after(time.Hour)
	if r.pool.isDrained(r.now) {
		t.Error("drained although a handler runs")
	}
	r.finish(e[0])
	r.expect(s, "report[1]")
	if r.pool.isDrained(r.now) {
		t.Error("drained without the ack")
	}
	r.hear(s, ack(1, sagapb.Ack_RESULT_ACCEPTED))
	if !r.pool.isDrained(r.now) {
		t.Error("not drained with the ack")
	}
}

func TestDrainWaitsForAcksOnlySoLong(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	e := r.run(s, 1)
	r.pool.startDrain(r.now)
	r.after(time.Minute)
	r.finish(e[0])
	r.say(s)
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{29999 * time.Millisecond, false}, {time.Millisecond, true}} {
		r.after(c.after)
		if r.pool.isDrained(r.now) != c.want {
			t.Errorf("after %v: wanted %v", c.after, c.want)
		}
	}
}

func TestServerThatGoesAway(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	r.run(s, 1)
	r.hear(s, tasks(aTask("h0", 2, 9*time.Second, time.Minute)))
	r.hear(s, &sagapb.ServerMessage{Command: &sagapb.ServerMessage_DrainRequested{
		DrainRequested: &sagapb.DrainRequested{Grace: durationpb.New(8 * time.Second)}}})
	r.expect(s, "release[2]")
	for _, c := range []struct {
		after time.Duration
		over  bool
	}{{3999 * time.Millisecond, false}, {time.Millisecond, true}} {
		r.after(c.after)
		if s.isOver(r.now) != c.over {
			t.Errorf("after %v: wanted %v", c.after, c.over)
		}
	}
}

func TestEndsOfAStream(t *testing.T) {
	for name, c := range map[string]struct {
		welcomed bool
		after    time.Duration
		over     bool
	}{
		"no welcome yet": {false, welcomeMax - 1, false},
		"no welcome":     {false, welcomeMax, true},
		"quiet":          {true, silenceMax - 1, false},
		"silent":         {true, silenceMax, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, 4)
			s := r.pool.sessions[0]
			s.open(r.now)
			if c.welcomed {
				r.hear(s, welcome())
			}
			r.after(c.after)
			if s.isOver(r.now) != c.over {
				t.Errorf("wanted %v", c.over)
			}
		})
	}
}

func TestIdleRepeatsCredit(t *testing.T) {
	r := newRig(t, 1, 4)
	s := r.pool.sessions[0]
	r.connect(s)
	r.after(idleAfter - 1)
	r.expect(s, "")
	r.after(1)
	r.expect(s, "credit[h0=4]")
}

func TestBackOff(t *testing.T) {
	r := newRig(t, 1, 1)
	s := r.pool.sessions[0]
	var longest []int64
	r.pool.random = func(below int64) int64 {
		longest = append(longest, below-1)
		return below - 1
	}
	for range 7 {
		s.open(r.now)
		s.lost(r.now)
	}
	if got := s.reconnect.Sub(r.now); got != backoffMax {
		t.Errorf("waits %v", got)
	}
	if want := "[100000000 300000000 700000000 1500000000 1900000000 1900000000 1900000000]"; fmt.Sprint(longest) != want {
		t.Errorf("spread %v, wanted %v", longest, want)
	}
	s.open(r.now)
	r.hear(s, welcome())
	r.after(steadyAfter)
	s.lost(r.now)
	if got := s.reconnect.Sub(r.now); got != 2*backoffMin {
		t.Errorf("after a steady stream it waits %v", got)
	}
}

func TestConcurrencyBoundsWhatRuns(t *testing.T) {
	r := newRig(t, 1, 4, 4)
	r.pool.concurrency = 1
	s := r.pool.sessions[0]
	s.open(r.now)
	r.expect(s, "hello[] credit[h0=4][h1=4]")
	r.hear(s, welcome())
	r.hear(s, tasks(aTask("h0", 1, 9*time.Second, time.Minute), aTask("h1", 2, 9*time.Second, time.Minute)))
	e := r.pool.take(r.now)
	if r.pool.take(r.now) != nil {
		t.Error("a second one runs")
	}
	r.after(3 * time.Second)
	r.expect(s, "extend[1 2]") // what waits is kept
	r.finish(e)
	if e := r.pool.take(r.now); e == nil || e.key.fence != 2 {
		t.Error("the second one does not follow")
	}
}

func TestWaitedTooLong(t *testing.T) {
	r := newRig(t, 1, 1)
	s := r.pool.sessions[0]
	r.connect(s)
	r.hear(s, tasks(aTask("h0", 1, 9*time.Second, time.Minute)))
	r.after(7200 * time.Millisecond)
	if r.pool.take(r.now) != nil {
		t.Error("it runs although its lease is over")
	}
	s.extendCheck = time.Time{} // what was not asked in time
	r.expect(s, "release[1] credit[h0=2]")
}

func TestStoppedBeforeTheFirstBeat(t *testing.T) {
	r := newRig(t, 1, 1)
	opened := r.now
	r.connect(r.pool.sessions[0])
	r.after(time.Minute)
	if since := r.pool.awake.since(r.now); since.After(opened) {
		t.Errorf("since %v after the stream was opened", since.Sub(opened))
	}
}

func TestSinceIsBeforeAMessageCame(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		beats    []int // ms
		at       int
		notAfter int
		notUnder int
	}{
		"regular":                      {[]int{0, 100, 200, 300}, 350, 300, 200},
		"first":                        {[]int{0}, 20, 0, 0},
		"stopped, the ticker is first": {[]int{0, 100, 200, 60200}, 60201, 200, 100},
		"stopped, the message is":      {[]int{0, 100, 200}, 60200, 200, 100},
		"a second after it":            {[]int{0, 100, 200, 60200, 60300, 60600, 60900, 61150, 61250, 61350}, 61360, 61350, 61200},
		"stopped again meanwhile":      {[]int{0, 100, 200, 60200, 60300, 90000}, 90001, 60300, 100},
	} {
		t.Run(name, func(t *testing.T) {
			var w wakefulness
			for _, beat := range c.beats {
				w.beat(at(beat))
			}
			got := w.since(at(c.at))
			if got.After(at(c.notAfter)) || got.Before(at(c.notUnder)) {
				t.Errorf("since %v, wanted %d to %d ms", got.Sub(start), c.notUnder, c.notAfter)
			}
		})
	}
}
