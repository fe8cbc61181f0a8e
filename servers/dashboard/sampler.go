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
	patience = 3 * time.Second  // how long a reading may take
	linger   = 10 * time.Second // how long the source is read after the last viewer has left
	replayed = 120              // how many changes a viewer that comes back can have missed
	sparks   = 180              // how many points of each budget a viewer gets at first

	mostViewers = 1000
)

// A sampler reads the source for all viewers of a page together. Its goroutine runs while somebody
// looks, for linger after that, and while somebody calls watch.
type sampler struct {
	source reader
	wrong  *wrongTokens  // nil if nobody counts them
	epoch  string        // tells the ids of this sampler's frames from those of another
	every  time.Duration // how often the source is read while somebody looks

	acted chan struct{} // somebody has acted, and a reading is wanted now
	came  chan struct{} // a viewer came, and a reading is wanted now

	mu       sync.Mutex
	viewers  int
	watchers int
	running  bool
	left     time.Time     // when the last viewer left
	news     chan struct{} // closed with the next frame
	fresh    bool          // the last frame is one of this run
	number   int64         // of the last frame
	frames   []frame       // the last ones, the oldest first
	now      document      // what viewers know after the last frame; nil while there was none
	whole    frame         // what a viewer gets at first; its number is 0 until a viewer wants it
	reading  *reading      // the last one that did not fail
	ahead    time.Duration // by how much the source's clock was ahead of this program's in that reading
	points   series
	closed   bands
	failed   string // why the last reading failed; "" if it did not
	failedAt int64
}

// A frame is an event as viewers are sent it. All viewers share its bytes.
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

// join counts a viewer, and sees to it that the source is read. It returns false if there are too
// many viewers.
func (s *sampler) join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.viewers >= mostViewers {
		return false
	}

	looked := s.viewers > 0 || time.Since(s.left) < linger
	s.viewers++
	if s.running && !looked {
		signal(s.came) // the last reading may be as old as seldom
	}

	s.start()
	return true
}

// leave takes a viewer off again.
func (s *sampler) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
	s.left = time.Now()
}

// watch has the source read until a context ends, seldom while nobody looks.
func (s *sampler) watch(ctx context.Context) {
	s.mu.Lock()
	s.watchers++
	s.start()
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	s.watchers--
	if s.viewers == 0 {
		signal(s.came) // so that the goroutine ends now
	}

	s.mu.Unlock()
}

// start starts the goroutine that reads, unless it runs. It is called with the lock.
func (s *sampler) start() {
	if !s.running {
		s.running, s.fresh = true, false
		go s.run()
	}
}

// poke has the source read now, because somebody has acted.
func (s *sampler) poke() { signal(s.acted) }

// signal sends on a channel that holds one signal, unless it holds one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// run reads the source until nobody has looked for linger.
func (s *sampler) run() {
	select {
	case <-s.came: // of a run before
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

		// Readings keep their rhythm, unless one takes longer than that.
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

// wait returns how long after a reading the next one is due. If none is wanted any more, the next viewer has to start
// the goroutine.
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

// take makes a frame of a reading, or of its failure.
func (s *sampler) take(r *reading, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.note(r, err)

	next, err := documentOf(s.state())
	if err != nil {
		return // a state has nothing that JSON cannot say
	}

	patch, err := json.Marshal(difference(s.now, next))
	if err != nil {
		return
	}

	s.number++
	s.now, s.fresh, s.whole = next, true, frame{}

	s.frames = append(s.frames, s.event("change", patch))
	if len(s.frames) > 2*replayed {
		s.frames = append([]frame(nil), s.frames[replayed:]...)
	}

	close(s.news)
	s.news = make(chan struct{})
}

// note notes a reading, or why there is none. It is called with the lock.
func (s *sampler) note(r *reading, err error) {
	if err != nil {
		if s.failed == "" {
			s.failedAt = time.Now().Add(s.ahead).UnixMilli()
		}
		s.failed = fleet.Clean(err.Error(), 500)
		return
	}

	at := r.At.UnixMilli()
	s.closed.add(r, func(id string) bool {
		p, _, known := s.points.at(id, at)
		return known && p.Left == 0 && at-p.At < (seldom+5*every).Milliseconds()
	})

	s.points.add(r)
	explain(r)
	s.reading, s.ahead, s.failed, s.failedAt = r, time.Until(r.At), "", 0
}

// event returns the last frame as an event, whose data is one line. It is called with the lock.
func (s *sampler) event(kind string, data []byte) frame {
	return frame{s.number, fmt.Appendf(nil, "event: %s\nid: %s-%d\ndata: %s\n\n", kind, s.epoch, s.number, data)}
}

// A state is what viewers know.
type state struct {
	At       int64             `json:"at"` // of the data, by the source's clock; 0 while there is none
	Kind     string            `json:"kind,omitempty"`
	Failed   string            `json:"failed,omitempty"`   // why the source cannot be read
	FailedAt int64             `json:"failedAt,omitempty"` // since when, by the source's clock
	Wrong    *wrongToken       `json:"wrongTokens,omitempty"`
	Watched  bool              `json:"watched,omitempty"` // it is read while nobody looks, too
	File     *file             `json:"file,omitempty"`
	Nodes    map[string]node   `json:"nodes"`
	Budgets  map[string]budget `json:"budgets"`
	Acts     []act             `json:"acts"`

	BudgetsLeftOut int `json:"budgetsLeftOut,omitempty"`
	NodesLeftOut   int `json:"nodesLeftOut,omitempty"`
	Illegible      int `json:"illegible,omitempty"`
}

// state returns what viewers are to know. It is called with the lock.
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
	all.BudgetsLeftOut, all.NodesLeftOut, all.Illegible = r.BudgetsLeftOut, r.NodesLeftOut, r.Illegible

	for _, n := range r.Nodes {
		all.Nodes[n.ID] = n
	}

	for _, b := range r.Budgets {
		all.Budgets[b.ID] = b
	}

	return all
}

// after returns the frames after that of a number, and the channel that is closed with the next one. ok is
// false if not all of them are known any more: then the viewer needs all.
func (s *sampler) after(number int64) (all []frame, news <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number > s.number || len(s.frames) == 0 || number < s.frames[0].number-1 {
		return nil, s.news, false
	}
	return slices.Clone(s.frames[len(s.frames)-int(s.number-number):]), s.news, true
}

// A whole is what a viewer gets at first, and what all viewers that come before the next reading share.
type whole struct {
	State  document           `json:"state"`
	Points map[string]columns `json:"points"`
}

// all returns all that a viewer is to know, and the channel that is closed with the next frame; no text while
// nothing was read since the sampler has begun to run.
func (s *sampler) all() (frame, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

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
	heartbeat  = 15 * time.Second // the longest silence of a stream
	writeTime  = 10 * time.Second // how long a viewer may take for what it is sent
	retryAfter = 2 * time.Second  // how soon a viewer that lost its stream asks again
)

// stream sends what changes, as server-sent events: an event state with all there is, then an event change
// with a merge patch for each reading. A viewer that says which event it saw last gets those since.
func (s *sampler) stream(w http.ResponseWriter, r *http.Request) {
	if !s.join() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}

	defer s.leave()
	head := w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("Cache-Control", "no-store")
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

// unseen is the number of the last frame of a viewer that has seen none.
const unseen = -1

// lastSeen returns the number of the frame with an id; unseen if it is none of this sampler.
func (s *sampler) lastSeen(id string) int64 {
	epoch, text, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != s.epoch {
		return unseen
	}
	return number
}

// tell sends a viewer what it has not seen, and sets last. It returns what is closed when there is more.
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

// A viewerStream sends events to one viewer. It keeps none of them: a thousand viewers share the bytes of a frame.
type viewerStream struct {
	to    http.ResponseWriter
	flush *http.ResponseController
}

// send sends a text. A viewer that takes none of it is given up after writeTime.
func (v *viewerStream) send(text []byte) error {
	// A server that knows no deadlines has none.
	_ = v.flush.SetWriteDeadline(time.Now().Add(writeTime))

	if _, err := v.to.Write(text); err != nil {
		return err
	}
	return v.flush.Flush()
}

// A document is a value of JSON as package json decodes it.
type document = map[string]any

// documentOf returns v as JSON has it.
func documentOf(v any) (document, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var d document
	return d, json.Unmarshal(text, &d)
}

// difference returns the merge patch (RFC 7396) that makes to of from. No value in a document
// is null, as a patch cannot say that.
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
