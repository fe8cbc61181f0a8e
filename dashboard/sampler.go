package dashboard

import (
	"context"
	"encoding/json"
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

// A sampler reads the source for all viewers together. Its goroutine runs while somebody
// looks, and for linger after that.
type sampler struct {
	source  Source
	budgets int
	epoch   string        // tells the ids of this sampler's frames from those of another
	every   time.Duration // how often the source is read

	mu       sync.Mutex
	viewers  int
	running  bool
	left     time.Time     // when the last viewer left
	poked    chan struct{} // a reading is wanted now
	news     chan struct{} // closed with the next frame
	fresh    bool          // the frame before the next one is one of this run
	number   int64         // of the last frame
	frames   []frame       // the last ones, the oldest first
	now      document      // what viewers know after the last frame; nil: there was none
	reading  *reading      // the last one that did not fail
	points   series
	closed   bands
	failed   string // why the last reading failed; "": it did not
	failedAt int64
}

// A frame is what has changed with one reading.
type frame struct {
	number int64
	patch  []byte // a merge patch
}

func newSampler(s Source, budgets int, epoch string) *sampler {
	return &sampler{
		source: s, budgets: budgets, epoch: epoch, every: every, poked: make(chan struct{}, 1),
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
	s.viewers++
	if !s.running {
		s.running, s.fresh = true, false
		go s.run()
	}
	return true
}

// leave takes a viewer off again.
func (s *sampler) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
	s.left = time.Now()
}

// poke has the source read now, because somebody has acted.
func (s *sampler) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// run reads the source until nobody has looked for linger.
func (s *sampler) run() {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for fresh := false; s.goOn(); {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		r, err := s.source.read(ctx, s.budgets, fresh)
		stop()
		s.take(r, err)
		select {
		case <-tick.C:
			fresh = false
		case <-s.poked:
			fresh = true
		}
	}
}

// goOn reports whether the source is to be read. If it is not, the next viewer has to start it.
func (s *sampler) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = s.viewers > 0 || time.Since(s.left) < linger
	return s.running
}

// take makes a frame of a reading, or of its failure.
func (s *sampler) take(r *reading, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.failed == "" {
			s.failedAt = time.Now().UnixMilli()
		}
		s.failed = fleet.Clean(err.Error(), 500)
	} else {
		at := r.At.UnixMilli()
		s.closed.add(r, func(id string) bool {
			p, known := s.points.at(id, at)
			return known && p.Left == 0 && at-p.At < 5*every.Milliseconds()
		})
		s.points.add(r)
		explain(r)
		s.reading, s.failed, s.failedAt = r, "", 0
	}
	next, err := documentOf(s.state())
	if err != nil {
		return // a state has nothing that JSON cannot say
	}
	patch, err := json.Marshal(difference(s.now, next))
	if err != nil {
		return
	}
	s.number++
	s.now, s.fresh = next, true
	s.frames = append(s.frames, frame{s.number, patch})
	if len(s.frames) > 2*replayed {
		s.frames = append([]frame(nil), s.frames[replayed:]...)
	}
	close(s.news)
	s.news = make(chan struct{})
}

// A state is what viewers know.
type state struct {
	At       int64             `json:"at"` // of the last reading, or of the failure after it
	Kind     string            `json:"kind,omitempty"`
	Failed   string            `json:"failed,omitempty"` // why the source cannot be read
	FailedAt int64             `json:"failedAt,omitempty"`
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
		At: time.Now().UnixMilli(), Failed: s.failed, FailedAt: s.failedAt,
		Nodes: make(map[string]node), Budgets: make(map[string]budget), Acts: []act{},
	}
	r := s.reading
	if r == nil {
		return all
	}
	if s.failed == "" {
		all.At = r.At.UnixMilli()
	}
	all.Kind, all.File, all.Acts = r.Kind, r.File, append(all.Acts, r.Acts...)
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
	return s.frames[len(s.frames)-int(s.number-number):], s.news, true
}

// A whole is what a viewer gets at first.
type whole struct {
	State  document           `json:"state"`
	Points map[string]columns `json:"points"`
}

// whole returns all that a viewer is to know, as JSON, and the number of the frame that it is as of; nil while
// nothing was read since the sampler has begun to run.
func (s *sampler) whole() (text []byte, number int64, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		return nil, 0, s.news
	}
	w := whole{s.now, make(map[string]columns)}
	if s.reading != nil {
		for i := range s.reading.Budgets {
			id := s.reading.Budgets[i].ID
			w.Points[id] = columnsOf(s.points[id], sparks)
		}
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, 0, s.news
	}
	return text, s.number, s.news
}
