package filestore

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// standstill is for how long a process may have locked the file, and write nothing, until another
// one goes on without it.
const standstill = 500 * time.Millisecond

// A backend implements [nodestore.Backend] by the files of a directory.
type backend struct {
	dir     string
	node    int64
	machine machine
	bells   bells
	boot    string
	grow    int64 // by how much a file grows before it is ended

	mu    sync.Mutex
	gen   *generation // nil: none is open
	used  bool        // a generation of this boot was open
	rows  rows
	heard nodestore.Heard // what other processes have done, not returned yet
	buf   []byte
}

// Lane implements [nodestore.Backend]. There is one lane: which policies are of one group depends on
// the policies of a program, and programs with other policies may share a budget.
func (b *backend) Lane(*throttle.Budget) string { return "" }

// Step implements [nodestore.Backend].
func (b *backend) Step(_ string, _ []ledger.Key, decide func(nodestore.Rows) nodestore.Told) (nodestore.Heard, error) {
	for {
		told, heard, done, err := b.try(decide)
		if err != nil {
			return heard, fmt.Errorf("filestore: %w", err)
		}
		if done {
			switch {
			case told.All:
				b.bells.ringAll(b.node)
			default:
				for _, node := range told.Nodes {
					b.bells.ring(node)
				}
			}
			return heard, nil
		}
	}
}

// try makes a step. It returns false if the step is to be made again: the generation has ended.
func (b *backend) try(decide func(nodestore.Rows) nodestore.Told) (told nodestore.Told, heard nodestore.Heard, done bool, err error) {
	g, err := b.current()
	if err != nil {
		return told, heard, false, err
	}
	if locked, err := b.lock(g); err != nil || !locked {
		return told, heard, false, err
	}
	defer unlock(g.f)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gen != g {
		return told, heard, false, nil
	}
	if gone, err := b.catchUp(g); err != nil || gone {
		return told, heard, false, errors.Join(err, b.advanceIf(gone, g))
	}
	if err := b.begin(true); err != nil {
		return told, heard, false, err
	}
	told = decide(&b.rows)
	saved, err := b.save(g, &told)
	b.rows.end(saved)
	if err != nil || !saved {
		return told, heard, false, errors.Join(err, b.advanceIf(err == nil, g))
	}
	heard, b.heard = b.heard, nodestore.Heard{}
	if g.end > g.limit {
		_ = b.advance(g) // the next step does it, if this one cannot: the file is longer then
	}
	return told, heard, true, nil
}

// lock locks a generation. It returns false if another process has locked it, and stands still; then
// the generation is ended.
func (b *backend) lock(g *generation) (locked bool, err error) {
	for {
		before, err := g.f.Stat()
		if err != nil {
			return false, err
		}
		if locked, err = lock(g.f, standstill); locked || err != nil {
			return locked, err
		}
		b.mu.Lock()
		if b.gen != g {
			b.mu.Unlock()
			return false, nil
		}
		after, err := g.f.Stat()
		if err == nil && after.Size() == before.Size() {
			err = b.advance(g)
		} else if err == nil {
			err = b.reopen(g) // others go on, and the lock may still be asked for in the old place
		}
		b.mu.Unlock()
		return false, err
	}
}

// current returns the generation that is open, and opens the last one if none is.
func (b *backend) current() (*generation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gen == nil {
		if err := b.open(0); err != nil {
			return nil, err
		}
	}
	return b.gen, nil
}

// catchUp takes in what other processes have done. It returns true if the generation was removed, or
// emptied. The file is locked.
func (b *backend) catchUp(g *generation) (gone bool, err error) {
	i, err := g.f.Stat()
	if err != nil || links(i) == 0 {
		return err == nil, err
	}
	if i.Size() > g.end {
		if err := g.read(b.take); err != nil {
			return false, err
		}
		if i.Size() > g.end {
			return false, g.cutTorn(i.Size())
		}
	}
	if i.Size() < g.end {
		if ended, err := g.hasEnded(); ended || err != nil {
			return ended, err // its records were taken away since
		}
		return false, fmt.Errorf("%s: %w: it was cut short", g.path, errDamaged)
	}
	return false, nil
}

// take takes in a record of another process.
func (b *backend) take(r record) error {
	b.rows.take(&r)
	if len(r.news) == 0 {
		return nil
	}
	n, err := nodestore.ParseNews(r.news)
	if err != nil {
		return errors.Join(errDamaged, err)
	}
	nodestore.Append(&b.heard.News, n)
	return nil
}

// begin asks the clock, and begins a step or a look.
func (b *backend) begin(changes bool) error {
	asked := time.Now()
	sinceBoot, wall, err := b.machine.clock()
	if err != nil {
		return err
	}
	if gain := wall - sinceBoot; gain > b.rows.ahead+drift {
		b.rows.ahead = gain
	}
	b.rows.begin(sinceBoot+b.rows.ahead, asked, changes)
	return nil
}

// save writes what a step has changed. It returns false if the generation has ended.
func (b *backend) save(g *generation, told *nodestore.Told) (saved bool, err error) {
	changed, err := b.rows.changed()
	if err != nil {
		return false, err
	}
	if len(changed) == 0 && told.Empty() {
		ended, err := g.hasEnded()
		return !ended, err
	}
	r := record{ahead: b.rows.ahead, rows: changed}
	if !told.Empty() {
		r.news = nodestore.AppendNews(nil, &told.News)
	}
	b.buf = r.append(b.buf[:0], g.end)
	if err := g.write(b.buf); err != nil {
		return false, err
	}
	if ended, err := g.hasEnded(); err != nil || ended {
		return false, err
	}
	g.end += int64(len(b.buf))
	return true, nil
}

// Read implements [nodestore.Backend].
func (b *backend) Read(_ string, look func(nodestore.Rows)) (heard nodestore.Heard, err error) {
	if _, err := b.current(); err != nil {
		return heard, fmt.Errorf("filestore: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.look(look); err != nil {
		return heard, fmt.Errorf("filestore: %w", err)
	}
	heard, b.heard = b.heard, nodestore.Heard{}
	return heard, nil
}

func (b *backend) look(look func(nodestore.Rows)) error {
	for {
		g := b.gen
		if err := g.read(b.take); err != nil {
			return err
		}
		ended, err := g.hasEnded()
		if err != nil {
			return err
		}
		if !ended {
			break
		}
		if err := b.advance(g); err != nil {
			return err
		}
	}
	if err := b.begin(false); err != nil {
		return err
	}
	look(&b.rows)
	return b.rows.err
}

// Listen implements [nodestore.Backend].
func (b *backend) Listen(_ string, wake func()) (stop func(), err error) {
	if stop, err := b.bells.listen(b.node, wake); err == nil {
		return stop, nil
	}
	return poll(wake), nil // the file system has no named pipes
}

// IsDead implements [nodestore.Mourner].
func (b *backend) IsDead(node int64) bool { return b.bells.isDead(node) }

// pollEvery is how often a node looks that others cannot wake.
const pollEvery = 250 * time.Millisecond

func poll(wake func()) (stop func()) {
	var mu sync.Mutex
	stopped := false
	var again func()
	again = func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			wake()
			time.AfterFunc(pollEvery, again)
		}
	}
	time.AfterFunc(pollEvery, again)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}

// advanceIf is advance if it is called for.
func (b *backend) advanceIf(ended bool, g *generation) error {
	if !ended {
		return nil
	}
	return b.advance(g)
}

// looksForNext is how often a process looks for the generation that another one is writing.
const looksForNext = 50

// advance goes on to the generation after one, which it ends, and which it writes if no other process does.
func (b *backend) advance(g *generation) error {
	if err := b.endGeneration(g); err != nil {
		return err
	}
	return b.open(g.number())
}

func (g *generation) number() int64 { return g.generation }

// endGeneration ends a generation.
func (b *backend) endGeneration(g *generation) error {
	ended, err := g.hasEnded()
	if err != nil {
		return err
	}
	if !ended {
		if err := g.markEnded(); err != nil {
			return err
		}
	} else {
		for range looksForNext {
			if last, err := newest(b.dir); err != nil || last > g.number() {
				return err
			}
			runtime.Gosched()
		}
	}
	if err := g.read(b.take); err != nil {
		return err
	}
	return b.succeed(g)
}

// succeed writes the generation after one that has ended, and was read to its end.
func (b *backend) succeed(g *generation) error {
	sinceBoot, wall, err := b.machine.clock()
	if err != nil {
		return err
	}
	next := header{1, b.boot}
	ahead := wall - sinceBoot
	if g != nil {
		if next.generation = g.number() + 1; g.boot == b.boot {
			ahead = max(b.rows.ahead, ahead-drift)
		}
	}
	i, err := os.Stat(b.dir)
	if err != nil {
		return err
	}
	return create(b.dir, fileMode(i), next, func(write func(*record) error) error {
		return b.rows.write(sinceBoot+ahead, ahead, write)
	})
}

// reopen opens a generation anew.
func (b *backend) reopen(g *generation) error {
	b.gen, b.heard.Lost = nil, true
	return b.open(g.number() - 1)
}

// open opens the last generation, which is later than one, and makes one if there is none.
func (b *backend) open(after int64) error {
	for {
		last, err := newest(b.dir)
		if err != nil {
			return err
		}
		switch {
		case last == 0: // this process is the first, or the files were removed
			if b.gen == nil {
				b.rows.clear()
			}
			if err := b.succeed(b.gen); err != nil {
				return err
			}
			continue
		case last <= after:
			after = 0 // the files were removed, and another process has begun anew
		}
		g, err := openGeneration(b.dir, last)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		if done, err := b.load(g); done || err != nil {
			return err
		}
		after = last
	}
}

// load takes a generation into use. It returns false if it has ended, or is of an earlier boot: then
// there is a later one now.
func (b *backend) load(g *generation) (done bool, err error) {
	if g.boot != b.boot && b.used {
		return false, errors.Join(ErrOtherMachine, g.f.Close())
	}
	// A file that was emptied had another one behind the next.
	b.heard.Lost = b.heard.Lost || b.gen != nil && g.generation > b.gen.generation+1
	b.rows.clear()
	b.gen = g
	if err := g.read(b.take); err != nil {
		b.gen = nil
		return false, errors.Join(err, g.f.Close())
	}
	ended, err := g.hasEnded()
	if err != nil {
		return false, err
	}
	if ended || g.boot != b.boot {
		return false, b.endGeneration(g)
	}
	if !b.used {
		b.used, b.heard = true, nodestore.Heard{} // of before this process
	}
	g.limit = 4*g.end + b.grow
	tidy(b.dir, g.number())
	return true, nil
}
