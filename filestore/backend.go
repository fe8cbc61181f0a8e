package filestore

import (
	"context"
	"errors"
	"fmt"
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
	listener listener

	mu sync.Mutex
	directory
	buf []byte
}

// Lane implements [nodestore.Backend]. There is one lane: which policies are of one group depends on
// the policies of a program, and programs with other policies may share a budget.
func (b *backend) Lane(*throttle.Budget) string { return "" }

// Step implements [nodestore.Backend].
func (b *backend) Step(_ string, _ []ledger.Key, decide func(nodestore.Rows) nodestore.Told) (nodestore.Heard, error) {
	for {
		told, heard, done, err := b.try(decide)
		if err != nil {
			return heard, fail(err)
		}
		if done {
			b.listener.tell(&told)
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
	if lost, err := g.isLost(); err != nil || lost {
		if err == nil {
			err = b.find(g)
		}
		if err == nil {
			b.listener.again() // where others look now
		}
		return told, heard, false, err
	}
	if ended, err := b.catchUp(g); err != nil || ended {
		if err == nil {
			err = b.advance(g)
		}
		return told, heard, false, err
	}
	if time.Now().Before(b.rests) {
		return told, heard, false, errBack
	}
	if err := b.begin(true); err != nil {
		return told, heard, false, err
	}
	told = decide(&b.rows)
	saved, err := b.save(g, &told)
	b.rows.End(saved)
	if err != nil || !saved {
		if err == nil {
			err = b.advance(g)
		}
		return told, heard, false, err
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
	before, err := g.f.Stat()
	if err != nil {
		return false, err
	}
	if locked, err = lock(g.f, standstill); locked || err != nil {
		return locked, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gen != g {
		return false, nil
	}
	after, err := g.f.Stat()
	if err != nil {
		return false, err
	}
	if after.Size() == before.Size() {
		return false, b.advance(g)
	}
	return false, b.reopen(g) // others go on, and the lock may still be asked for in the old place
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

// catchUp takes in what other processes have done. It returns true if the generation was ended and
// emptied. The file is locked.
func (b *backend) catchUp(g *generation) (ended bool, err error) {
	i, err := g.f.Stat()
	if err != nil {
		return false, err
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
	b.rows.Begin(sinceBoot+b.rows.ahead, asked, time.Now(), changes)
	return nil
}

// save writes what a step has changed. It returns false if the generation has ended.
func (b *backend) save(g *generation, told *nodestore.Told) (saved bool, err error) {
	changed, err := b.rows.Changed()
	if err != nil {
		return false, damage(err)
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
func (b *backend) Read(_ context.Context, _ string, _ []ledger.Key, look func(nodestore.Rows)) (heard nodestore.Heard, err error) {
	if _, err := b.current(); err != nil {
		return heard, fail(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.look(look); err != nil {
		return heard, fail(err)
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
	return damage(b.rows.Err())
}

// damage says that rows could not be read because the file is damaged. Rows that are known cannot be
// written if they name too many nodes.
func damage(err error) error {
	if errors.Is(err, ledger.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// Listen implements [nodestore.Backend].
func (b *backend) Listen(_ string, wake func()) (stop func(), err error) {
	return b.listener.start(wake), nil
}

// IsDead implements [nodestore.DeathObserver].
func (b *backend) IsDead(node int64) bool { return b.listener.bells.isDead(node) }
