package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sort"
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

	viewed := s.viewers > 0 || time.Since(s.left) < linger
	s.viewers++

	// While only watch runs, the last reading may be ten seconds old, so read now.
	if s.running && !viewed {
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

// watch keeps the readings going until ctx ends: one every seldom while nobody views the page, and otherwise as for viewers.
func (s *sampler) watch(ctx context.Context) {
	s.mu.Lock()
	s.watchers++
	s.start()
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	s.watchers--
	if s.viewers == 0 {
		signal(s.came) // wakes run, which ends if nobody needs it any more
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

// run reads the source until there is no watcher, and the last viewer has been gone for linger.
func (s *sampler) run() {
	select {
	case <-s.came: // drop a signal of a previous run
	default:
	}

	due := time.Now()
	for fresh := false; ; {
		interval, wanted := s.interval()
		if !wanted {
			return
		}

		ctx, stop := context.WithTimeout(context.Background(), patience)
		r, err := s.source.read(ctx, fresh)
		stop()
		s.take(r, err)

		// Keep the rhythm of readings, unless a reading takes longer than the interval.
		due = due.Add(interval)
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

// interval returns the interval to the next reading. wanted is false if nobody needs a reading: interval has noted then that
// the goroutine does not run. The goroutine must end, and the next viewer starts a new one.
func (s *sampler) interval() (d time.Duration, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	viewed := s.viewers > 0 || time.Since(s.left) < linger
	s.running = viewed || s.watchers > 0
	if viewed {
		return s.every, s.running
	}
	return seldom, s.running
}

// take turns a reading, or its failure, into a frame, and wakes the viewers.
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

	// Add the bands before the points: the function below needs the point of the previous reading. A previous reading is
	// recent if it is not older than the longest interval, with a margin.
	s.closed.add(r, func(id string) bool {
		p, _, known := s.points.at(id, at)
		return known && p.Left == 0 && at-p.At < (seldom+5*every).Milliseconds()
	})

	s.points.add(r)
	explain(r)
	s.reading, s.ahead, s.failed, s.failedAt = r, time.Until(r.At), "", 0
}

// event returns an event with one line of data, as a frame with the number of the last frame. The mutex is held.
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

	isKept := len(s.frames) > 0 && number >= s.frames[0].number-1
	if number > s.number || !isKept {
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
// text before the first reading of a run, because the readings after the last viewer have cleared whole.
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
// reading. A viewer that names its last event gets only later events, as long as the sampler has all of them.
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

// lastSeen returns the frame number in an event id, or unseen if this sampler has not created the id.
func (s *sampler) lastSeen(id string) int64 {
	epoch, text, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != s.epoch {
		return unseen
	}
	return number
}

// tell sends a viewer the frames after last, or the whole state if last is unseen or the sampler has not all of
// them, and sets last to the last frame sent. Before the first reading of a run it does not send the state. It
// returns a channel that is closed with the next frame.
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

const (
	every      = time.Second      // interval of readings while the page is open
	seldom     = 10 * time.Second // interval of readings of Handler.Watch
	remembered = time.Hour        // how long each reading is kept
	coarseStep = time.Minute      // span of a coarse point
	coarseKept = 24 * time.Hour   // how long coarse points and bands are kept
)

// mostPoints and mostCoarse bound the points of a budget.
const (
	mostPoints = int(remembered / every)
	mostCoarse = int(coarseKept / coarseStep)
)

// A point is the state of a budget at one moment.
type point struct {
	At       int64 // Unix milliseconds
	Used     int
	Capacity int
	Booked   int
	Waiting  int
	Wait     int64 // milliseconds; -1 if no start could be planned
	Left     int64 // remaining time of the closure, in milliseconds
	Starts   float64
}

// A track is the history of one budget, oldest first: every reading of the last hour, and one coarse point
// per minute of 24 hours, with the maxima of that minute.
type track struct {
	fine, coarse []point
	readings     int // in the last coarse point
}

// series are the tracks of all budgets by id.
type series map[string]*track

// add adds the points of a reading, and drops points that are too old.
func (s series) add(r *reading) {
	at := r.At.UnixMilli()
	for i := range r.Budgets {
		b := &r.Budgets[i]
		p := point{at, b.Used, b.Capacity, b.Booked, b.Callers, b.Wait, 0, max(0, b.Starts)}
		if b.Until > at {
			p.Left = b.Until - at
		}

		t := s[b.ID]
		if t == nil {
			t = new(track)
			s[b.ID] = t
		}

		t.fine = append(t.fine, p)
		t.addCoarse(p)
	}

	// Drop old points of all budgets, also of budgets that the reading does not show.
	for id, t := range s {
		t.fine = without(t.fine, at-remembered.Milliseconds(), mostPoints)
		t.coarse = without(t.coarse, at-coarseKept.Milliseconds(), mostCoarse)
		if len(t.fine)+len(t.coarse) == 0 {
			delete(s, id)
		}
	}

	// Keep as many budgets again that are not shown now: a budget that comes and goes keeps its history.
	s.bound(2 * max(DefaultBudgets, len(r.Budgets)))
}

// bound drops the tracks with the oldest last points until at most limit tracks are left. The dropped tracks
// belong to budgets that are no longer shown, such as the budgets of former tenants.
func (s series) bound(limit int) {
	if len(s) <= limit {
		return
	}

	// A track without fine points has coarse points: add has deleted the empty tracks.
	last := func(id string) int64 {
		t := s[id]
		if n := len(t.fine); n > 0 {
			return t.fine[n-1].At
		}
		return t.coarse[len(t.coarse)-1].At
	}

	ids := slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(last(b), last(a)), cmp.Compare(a, b)) })
	for _, id := range ids[limit:] {
		delete(s, id)
	}
}

// addCoarse merges a point into the coarse point of its minute.
func (t *track) addCoarse(p point) {
	p.At -= p.At % coarseStep.Milliseconds()
	last := len(t.coarse) - 1
	if last < 0 || t.coarse[last].At < p.At {
		t.coarse, t.readings = append(t.coarse, p), 1
		return
	}

	t.readings++
	c := &t.coarse[last]

	// Keep the worst reading of the minute, so that short trouble stays visible.
	c.Used, c.Capacity, c.Booked = max(c.Used, p.Used), max(c.Capacity, p.Capacity), max(c.Booked, p.Booked)
	c.Waiting, c.Wait, c.Left = max(c.Waiting, p.Waiting), max(c.Wait, p.Wait), max(c.Left, p.Left)

	// Starts are a rate, so they are averaged.
	c.Starts += (p.Starts - c.Starts) / float64(t.readings)
}

// without returns points without those before the moment oldest, and without the oldest beyond limit points. It
// drops none until more than an eighth can go, because dropping copies the rest. It returns nil if all go.
func without(points []point, oldest int64, limit int) []point {
	old := 0
	for old < len(points) && (points[old].At < oldest || len(points)-old > limit) {
		old++
	}
	switch {
	case old == len(points):
		return nil
	case old > min(len(points), limit)/8:
		return slices.Clone(points[old:])
	}
	return points
}

// at returns the last point of a budget up to a moment: a reading, or a coarse point before the first reading. lasts is
// for how long the point is valid. ok is false without such a point.
func (s series) at(id string, moment int64) (found point, lasts time.Duration, ok bool) {
	t := s[id]
	if t == nil {
		return found, 0, false
	}
	if p, ok := lastAt(t.fine, moment); ok {
		return p, 10 * every, true
	}
	p, ok := lastAt(t.coarse, moment)
	return p, coarseStep, ok
}

// lastAt returns the last point up to a moment. ok is false without such a point.
func lastAt(points []point, moment int64) (found point, ok bool) {
	after := sort.Search(len(points), func(i int) bool { return points[i].At > moment })
	if after == 0 {
		return found, false
	}
	return points[after-1], true
}

// columns are the points of a budget, column by column.
type columns struct {
	At       []int64   `json:"at"`
	Used     []int     `json:"used"`
	Capacity []int     `json:"capacity"`
	Waiting  []int     `json:"waiting"`
	Wait     []int64   `json:"wait"`
	Starts   []float64 `json:"starts"`
}

// recent returns the latest readings of a budget, at most limit of them, or empty columns for an unknown budget.
func (s series) recent(id string, limit int) columns {
	t := s[id]
	if t == nil {
		return columnsOf(nil)
	}
	return columnsOf(t.fine[max(0, len(t.fine)-limit):])
}

// history returns the whole history of a budget: coarse points, then readings. It returns false for an unknown
// budget.
func (s series) history(id string) (columns, bool) {
	t := s[id]
	if t == nil {
		return columnsOf(nil), false
	}
	coarse := t.coarse
	if len(t.fine) > 0 {
		// Leave out the minutes that the readings cover, or they would be drawn twice.
		before := sort.Search(len(coarse), func(i int) bool { return coarse[i].At+coarseStep.Milliseconds() > t.fine[0].At })
		coarse = coarse[:before]
	}
	return columnsOf(append(slices.Clone(coarse), t.fine...)), true
}

// columnsOf turns points into columns.
func columnsOf(points []point) columns {
	c := columns{[]int64{}, []int{}, []int{}, []int{}, []int64{}, []float64{}}
	for _, p := range points {
		c.At, c.Used, c.Capacity = append(c.At, p.At), append(c.Used, p.Used), append(c.Capacity, p.Capacity)
		c.Waiting, c.Wait, c.Starts = append(c.Waiting, p.Waiting), append(c.Wait, p.Wait), append(c.Starts, p.Starts)
	}
	return c
}

// mostBands bounds the bands of a budget.
const mostBands = 50

// bands are the times in which budgets were closed, by budget id, oldest first.
type bands map[string][]band

// slack is the tolerated jitter of a pause's end in milliseconds: a reading
// takes time, but has one timestamp.
const slack = 1500

// add merges a reading into the bands, and sets the bands of the reading's budgets. wasOpen reports whether a
// recent reading found a budget open.
func (all bands) add(r *reading, wasOpen func(id string) bool) {
	at := r.At.UnixMilli()

	// First the bands that nobody watched, then the present state, which may end the last band.
	for id, closed := range r.Closed {
		all.insert(id, closed)
	}

	for i := range r.Budgets {
		b := &r.Budgets[i]
		all.meet(b, at, wasOpen(b.ID))
	}

	// Drop bands that are too old or too many.
	for id, own := range all {
		old := 0
		for old < len(own) && (own[old].Until < at-coarseKept.Milliseconds() || len(own)-old > mostBands) {
			old++
		}

		all[id] = own[old:]
		if old == len(own) {
			delete(all, id)
		}
	}

	for i := range r.Budgets {
		r.Budgets[i].Bands = slices.Clone(all[r.Budgets[i].ID])
	}
}

// meet merges the present state of a budget into its bands. wasOpen means that a recent reading found the budget open. An
// end that moves by slack or less stays, also in b, so that the page does not flicker.
func (all bands) meet(b *budget, at int64, wasOpen bool) {
	own := all[b.ID]
	last := len(own) - 1
	inForce := last >= 0 && own[last].Until > at // the last band reaches beyond this moment
	switch {
	// The last band goes on.
	case b.Until > at && inForce && own[last].By == b.By && own[last].Reason == b.Reason:
		if moved := b.Until - own[last].Until; moved < -slack || moved > slack {
			own[last].Until = b.Until
		}
		b.Until = own[last].Until

	case b.Until > at:
		next := band{From: at, Until: b.Until, Closer: b.Closer, By: b.By, Reason: b.Reason}
		switch {
		case inForce:
			// The cause has changed, so the last band ends where the next band begins.
			own[last].Until = at
		case b.Since > 0:
			next.From, next.Before = b.Since, b.SinceLeast
		default:
			// Nobody has seen the budget open, so the closing may have begun earlier.
			next.Before = !wasOpen
		}

		all[b.ID] = append(own, next)

	// The budget is open before its time: an operator has opened it.
	case inForce && own[last].Until > at+slack:
		own[last].Until = at
	}
}

// insert adds the parts of a budget's bands that no known band of the budget covers.
func (all bands) insert(id string, closed []band) {
	for _, b := range closed {
		parts := []band{b}
		for _, known := range all[id] {
			var rest []band
			for _, p := range parts {
				before, after := p, p
				before.Until, after.From = min(p.Until, known.From), max(p.From, known.Until)
				if before.From < before.Until {
					rest = append(rest, before)
				}
				if after.From < after.Until {
					rest = append(rest, after)
				}
			}
			parts = rest
		}
		all[id] = append(all[id], parts...)
	}
	slices.SortFunc(all[id], func(a, b band) int { return cmp.Compare(a.From, b.From) })
}
