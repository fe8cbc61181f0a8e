package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

const (
	patience = 3 * time.Second  // time limit of a reading
	linger   = 10 * time.Second // how long the source is read after the last viewer has left
	replayed = 120              // how many changes a returning viewer can have missed
	sparks   = 180              // how many points of each budget a viewer gets at first

	mostViewers = 1000
)

// A sampler reads the source for all viewers of a page together. Its goroutine runs while the page is open,
// for linger after that, and during watch.
type sampler struct {
	source reader
	wrong  *wrongTokens  // may be nil
	epoch  string        // distinguishes the frame ids of this sampler from those of its predecessors
	every  time.Duration // interval of readings while the page is open

	acted chan struct{} // somebody has acted: read now
	came  chan struct{} // a viewer came: read now

	mu       sync.Mutex
	viewers  int
	watchers int
	running  bool
	left     time.Time     // when the last viewer left
	news     chan struct{} // closed with the next frame
	fresh    bool          // the last frame belongs to this run
	number   int64         // of the last frame
	frames   []frame       // latest frames, oldest first
	now      document      // state that viewers have after the last frame, nil before the first
	whole    frame         // first frame of a new viewer; number 0 until a viewer needs it
	reading  *reading      // the last successful reading
	ahead    time.Duration // by how much the source's clock was ahead of this program's in that reading
	points   series
	closed   bands
	failed   string // why the last reading failed, or ""
	failedAt int64
}

// A frame is an encoded event. All viewers share its bytes.
type frame struct {
	number int64
	text   []byte
}

func newSampler(s reader, epoch string) *sampler {
	return &sampler{
		source: s, epoch: epoch, every: every, acted: make(chan struct{}, 1), came: make(chan struct{}, 1),
		news: make(chan struct{}), points: make(series), closed: make(bands),
	}
}

// join counts a viewer and starts the readings. It returns false if there are too many viewers.
func (s *sampler) join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.viewers >= mostViewers {
		return false
	}

	looked := s.viewers > 0 || time.Since(s.left) < linger
	s.viewers++
	if s.running && !looked {
		// The last reading may be ten seconds old.
		signal(s.came)
	}

	s.start()
	return true
}

// leave removes a viewer.
func (s *sampler) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
	s.left = time.Now()
}

// watch reads the source until ctx ends, every ten seconds while nobody views the page.
func (s *sampler) watch(ctx context.Context) {
	s.mu.Lock()
	s.watchers++
	s.start()
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	s.watchers--
	if s.viewers == 0 {
		signal(s.came) // ends the goroutine now
	}

	s.mu.Unlock()
}

// start starts the goroutine unless it runs. The mutex is held.
func (s *sampler) start() {
	if !s.running {
		s.running, s.fresh = true, false
		go s.run()
	}
}

// poke triggers a reading after an act.
func (s *sampler) poke() { signal(s.acted) }

// signal sends to a channel of one element, unless it is full.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// run reads the source until the last viewer has been gone for linger.
func (s *sampler) run() {
	select {
	case <-s.came: // of a previous run
	default:
	}

	due := time.Now()
	for fresh := false; ; {
		wait, wanted := s.wait()
		if !wanted {
			return
		}

		ctx, stop := context.WithTimeout(context.Background(), patience)
		r, err := s.source.read(ctx, fresh)
		stop()
		s.take(r, err)

		// Keep the rhythm of readings, unless a reading takes longer than the interval.
		due = due.Add(wait)
		rest := time.NewTimer(time.Until(due))

		fresh = false
		select {
		case <-rest.C:
			due = time.Now()
		case <-s.acted:
			due, fresh = time.Now(), true
		case <-s.came:
			due = time.Now()
		}

		rest.Stop()
	}
}

// wait returns the time to the next reading. If none is due, the goroutine ends, and the next viewer starts a
// new one.
func (s *sampler) wait() (d time.Duration, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := s.viewers > 0 || time.Since(s.left) < linger
	s.running = looked || s.watchers > 0
	if looked {
		return s.every, s.running
	}
	return seldom, s.running
}

// take turns a reading, or its failure, into a frame.
func (s *sampler) take(r *reading, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.note(r, err)

	// Viewers get the change from the last document only.
	next, err := documentOf(s.state())
	if err != nil {
		return // JSON can encode every state
	}

	patch, err := json.Marshal(difference(s.now, next))
	if err != nil {
		return
	}

	s.number++
	s.now, s.fresh, s.whole = next, true, frame{}

	s.frames = append(s.frames, s.event("change", patch))

	// Copy rarely: the list may grow to twice its length first.
	if len(s.frames) > 2*replayed {
		s.frames = append([]frame(nil), s.frames[replayed:]...)
	}

	close(s.news)
	s.news = make(chan struct{})
}

// note records a reading, or its failure. The mutex is held.
func (s *sampler) note(r *reading, err error) {
	if err != nil {
		// Keep the moment of the first of several failures.
		if s.failed == "" {
			s.failedAt = time.Now().Add(s.ahead).UnixMilli()
		}
		s.failed = fleet.Clean(err.Error(), 500)
		return
	}

	at := r.At.UnixMilli()

	// The bands come before the points, because this function looks at the point of the previous reading.
	s.closed.add(r, func(id string) bool {
		p, _, known := s.points.at(id, at)
		return known && p.Left == 0 && at-p.At < (seldom+5*every).Milliseconds()
	})

	s.points.add(r)
	explain(r)
	s.reading, s.ahead, s.failed, s.failedAt = r, time.Until(r.At), "", 0
}

// event returns the last frame as an event with one line of data. The mutex is held.
func (s *sampler) event(kind string, data []byte) frame {
	return frame{s.number, fmt.Appendf(nil, "event: %s\nid: %s-%d\ndata: %s\n\n", kind, s.epoch, s.number, data)}
}

// A state is the data of the page.
type state struct {
	At       int64             `json:"at"` // time of the data, by the source's clock, 0 before the first reading
	Kind     string            `json:"kind,omitempty"`
	Failed   string            `json:"failed,omitempty"`   // why the source cannot be read
	FailedAt int64             `json:"failedAt,omitempty"` // since when, by the source's clock
	Wrong    *wrongToken       `json:"wrongTokens,omitempty"`
	Watched  bool              `json:"watched,omitempty"` // Handler.Watch runs
	File     *file             `json:"file,omitempty"`
	Nodes    map[string]node   `json:"nodes"`
	Budgets  map[string]budget `json:"budgets"`
	Acts     []act             `json:"acts"`

	BudgetsLeftOut int `json:"budgetsLeftOut,omitempty"`
	ClosedLeftOut  int `json:"closedLeftOut,omitempty"`
	NodesLeftOut   int `json:"nodesLeftOut,omitempty"`
	Illegible      int `json:"illegible,omitempty"`
}

// state returns the data of the page. The mutex is held.
func (s *sampler) state() state {
	all := state{
		Failed: s.failed, FailedAt: s.failedAt, Watched: s.watchers > 0, Wrong: s.wrong.read(),
		Nodes: make(map[string]node), Budgets: make(map[string]budget), Acts: []act{},
	}

	r := s.reading
	if r == nil {
		return all
	}

	all.At, all.Kind, all.File, all.Acts = r.At.UnixMilli(), r.Kind, r.File, append(all.Acts, r.Acts...)
	all.BudgetsLeftOut, all.ClosedLeftOut, all.NodesLeftOut, all.Illegible = r.BudgetsLeftOut, r.ClosedLeftOut, r.NodesLeftOut, r.Illegible

	for _, n := range r.Nodes {
		all.Nodes[n.ID] = n
	}

	for _, b := range r.Budgets {
		all.Budgets[b.ID] = b
	}

	return all
}

// after returns the frames after a number, and a channel that is closed with the next frame. ok is false if
// some of these frames are gone: then the viewer needs the whole state.
func (s *sampler) after(number int64) (all []frame, news <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number > s.number || len(s.frames) == 0 || number < s.frames[0].number-1 {
		return nil, s.news, false
	}
	return slices.Clone(s.frames[len(s.frames)-int(s.number-number):]), s.news, true
}

// A whole is the first event of a viewer, shared by all viewers that come before the next reading.
type whole struct {
	State  document           `json:"state"`
	Points map[string]columns `json:"points"`
}

// all returns the first event of a viewer, and a channel that is closed with the next frame. The frame has no
// text before the first reading of a run.
func (s *sampler) all() (frame, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Viewers that come between two readings share one text.
	if !s.fresh || s.whole.number == s.number {
		return s.whole, s.news
	}

	w := whole{s.now, make(map[string]columns)}
	if s.reading != nil {
		for i := range s.reading.Budgets {
			id := s.reading.Budgets[i].ID
			w.Points[id] = s.points.recent(id, sparks)
		}
	}

	if text, err := json.Marshal(w); err == nil {
		s.whole = s.event("state", text)
	}

	return s.whole, s.news
}

const (
	heartbeat  = 15 * time.Second // longest silence of a stream
	writeTime  = 10 * time.Second // time limit of a write to a viewer
	retryAfter = 2 * time.Second  // reconnect delay of a viewer
)

// stream sends server-sent events: first "state" with the whole state, then "change" with a merge patch per
// reading. A viewer that names its last event gets only later events.
func (s *sampler) stream(w http.ResponseWriter, r *http.Request) {
	if !s.join() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.leave()

	head := w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("Cache-Control", "no-store")

	// nginx would hold events back until its buffer is full.
	head.Set("X-Accel-Buffering", "no")

	to := &viewerStream{w, http.NewResponseController(w)}
	if to.send(fmt.Appendf(nil, "retry: %d\n\n", retryAfter.Milliseconds())) != nil {
		return
	}

	beat := time.NewTimer(heartbeat)
	defer beat.Stop()

	for last := s.lastSeen(cmp.Or(r.Header.Get("Last-Event-ID"), r.FormValue("last"))); ; {
		news, err := s.tell(to, &last)
		if err != nil {
			return
		}

		beat.Reset(heartbeat)
		select {
		case <-news:
		case <-beat.C:
			if to.send([]byte(": still here\n\n")) != nil {
				return
			}

		case <-r.Context().Done():
			return
		}
	}
}

// unseen is the last frame of a new viewer.
const unseen = -1

// lastSeen returns the frame number in an event id, or unseen if a different sampler created the id.
func (s *sampler) lastSeen(id string) int64 {
	epoch, text, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != s.epoch {
		return unseen
	}
	return number
}

// tell sends a viewer the frames that it has not seen, and updates last. It returns a channel that is closed
// with the next frame.
func (s *sampler) tell(to *viewerStream, last *int64) (<-chan struct{}, error) {
	if *last != unseen {
		if frames, news, ok := s.after(*last); ok {
			for _, f := range frames {
				if err := to.send(f.text); err != nil {
					return nil, err
				}
				*last = f.number
			}
			return news, nil
		}
	}

	all, news := s.all()
	if all.text == nil {
		return news, nil
	}

	*last = all.number
	return news, to.send(all.text)
}

// A viewerStream sends events to one viewer. It keeps no copies: a thousand viewers share the bytes of a
// frame.
type viewerStream struct {
	to    http.ResponseWriter
	flush *http.ResponseController
}

// send sends a text. It gives up a viewer that takes nothing for writeTime.
func (v *viewerStream) send(text []byte) error {
	// A server without deadlines cannot limit the write.
	_ = v.flush.SetWriteDeadline(time.Now().Add(writeTime))

	if _, err := v.to.Write(text); err != nil {
		return err
	}
	return v.flush.Flush()
}

// A document is a JSON object as encoding/json decodes it.
type document = map[string]any

// documentOf encodes v as JSON and decodes it.
func documentOf(v any) (document, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var d document
	return d, json.Unmarshal(text, &d)
}

// difference returns the merge patch (RFC 7396) from one document to the next. Documents must not contain
// null, which a patch cannot express.
func difference(from, to document) document {
	patch := make(document)
	for name := range from {
		if _, stays := to[name]; !stays {
			patch[name] = nil
		}
	}

	for name, value := range to {
		old, known := from[name]
		inner, isObject := value.(document)

		before, wasObject := old.(document)
		switch {
		case known && isObject && wasObject:
			if d := difference(before, inner); len(d) > 0 {
				patch[name] = d
			}

		case !known || !reflect.DeepEqual(old, value):
			patch[name] = value
		}
	}

	return patch
}
