package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// standstill is for how long a process may have locked the file, and write nothing, until the others
// go on without it.
const standstill = 500 * time.Millisecond

// A backend implements [node.Backend] by the files of a directory.
type backend struct {
	listener listener

	// mu guards the fields below. It is a channel with room for one, because a look stops waiting for it when its context ends: a step holds
	// mu while the file system writes, which may take long.
	mu chan struct{}
	directory
	buf []byte
}

// lockRows locks all that mu guards.
func (b *backend) lockRows() { b.mu <- struct{}{} }

// unlockRows unlocks all that mu guards.
func (b *backend) unlockRows() { <-b.mu }

// Step implements [node.Backend]. It needs no keys, because a process knows all rows, and returns no news, because decide has them all in its Rows.
func (b *backend) Step(_ []ledger.Key, decide func(node.Rows) node.Told) (node.Heard, error) {
	for {
		told, done, err := b.try(decide)
		if err != nil {
			return node.Heard{}, fail(err)
		}

		// Ring for other nodes only now that the rows are saved: earlier they would find nothing.
		if done {
			b.listener.tell(&told)
			return node.Heard{}, nil
		}
	}
}

// try makes a step in the present generation, and returns what decide returns for others. done is false if the step must be made again: the lock was not
// granted in time, or the generation was lost or ended before the step was saved. By then another generation is open, or the file is opened anew.
func (b *backend) try(decide func(node.Rows) node.Told) (told node.Told, done bool, err error) {
	// Wait for the lock of the file before locking the rows: callers of this process can look meanwhile, even if the process with the lock stands still.
	g, err := b.current()
	if err != nil {
		return told, false, err
	}
	if locked, err := b.lock(g); err != nil || !locked {
		return told, false, err
	}

	defer unlock(g.f)
	b.lockRows()
	defer b.unlockRows()

	// The generation may have changed before its file was locked.
	if b.gen != g {
		return told, false, nil
	}

	// Somebody may have removed the files, or put others in their place.
	lost, err := g.isLost()
	if err != nil {
		return told, false, err
	}
	if lost {
		return told, false, b.findAgain(lost)
	}

	// Apply the steps of all other processes before this step is decided.
	ended, err := b.catchUp(g)
	if err != nil {
		return told, false, err
	}
	if ended {
		return told, false, b.advance(g)
	}

	// After earlier files were put back, wait until this process' leases in them are over: see find.
	if time.Now().Before(b.restsUntil) {
		return told, false, errBack
	}

	if err := b.begin(true); err != nil {
		return told, false, err
	}
	b.rows.Hear(b.heard)
	told = decide(&b.rows)
	saved, err := b.save(g, &told)
	b.rows.End(saved)
	if err != nil {
		return told, false, err
	}
	if !saved {
		return told, false, b.advance(g)
	}

	// The step has used the news.
	b.heard = node.Heard{}

	// End a file that has become long. If that fails the next step tries again.
	if g.end > g.limit {
		_ = b.advance(g)
	}

	return told, true, nil
}

// lock locks the file of a generation. It returns false if it does not get the lock within standstill. If the file has not grown meanwhile, the
// process that has the lock stands still, and lock ends the generation.
func (b *backend) lock(g *generation) (locked bool, err error) {
	before, err := g.f.Stat()
	if err != nil {
		return false, err
	}
	if locked, err = lock(g.f, standstill); locked || err != nil {
		return locked, err
	}

	b.lockRows()
	defer b.unlockRows()

	// A look of this process may have opened the next generation meanwhile.
	if b.gen != g {
		return false, nil
	}

	// The kernel may still grant the lock on this open file, and lose it again: see the function lock. So the next try opens the file anew.
	g.spent = true

	// If the file has grown other processes make steps, so nobody stands still.
	after, err := g.f.Stat()
	if err == nil && after.Size() == before.Size() {
		err = b.advance(g)
	}
	return false, err
}

// findAgain opens the last generation in place of b.gen, whose file is lost or, if isLost is false, must only be opened anew. The rows are locked.
func (b *backend) findAgain(isLost bool) error {
	if err := b.find(b.gen, isLost); err != nil {
		return err
	}
	b.listener.again() // other nodes may ring in a new directory now
	return nil
}

// current returns the generation that is open, and opens the last one if none is.
func (b *backend) current() (*generation, error) {
	b.lockRows()
	defer b.unlockRows()
	err := b.openIfNone()
	return b.gen, err
}

// openIfNone opens the last generation if none is open whose file can be locked. The rows are locked.
func (b *backend) openIfNone() error {
	switch {
	case b.gen == nil:
		return b.open()
	case b.gen.spent:
		lost, err := b.gen.isLost()
		if err != nil {
			return err
		}
		return b.findAgain(lost)
	}
	return nil
}

// catchUp applies the steps of other processes, and cuts off a record that a killed process has not finished. It
// returns true if the generation was ended and emptied. The file and the rows are locked.
func (b *backend) catchUp(g *generation) (ended bool, err error) {
	i, err := g.f.Stat()
	if err != nil {
		return false, err
	}

	// Read the records behind the last known one: read moves g.end.
	size := i.Size()
	if size > g.end {
		if size > maxFile {
			return false, fmt.Errorf("%s: %w: it has %d bytes, and no store writes so many", g.path, errDamaged, size)
		}
		if err := g.read(b.take); err != nil {
			return false, err
		}
	}

	switch {
	// The bytes that are left are no record: a process was killed while it wrote them.
	case size > g.end:
		return false, g.cutTorn(size)

	// Records are missing. A store removes records only in tidy, and only from a generation that has ended.
	case size < g.end:
		if ended, err := g.hasEnded(); ended || err != nil {
			return ended, err
		}
		return false, fmt.Errorf("%s: %w: it was cut short", g.path, errDamaged)
	}

	return false, nil
}

// begin reads the clock and begins a step or, without changes, a look.
func (b *backend) begin(changes bool) error {
	asked := time.Now()
	sinceBoot, wall, err := b.machine.clock()
	if err != nil {
		return err
	}

	// The store's clock follows a wall clock that was set forward, and never goes back.
	if gain := wall - sinceBoot; gain > b.rows.ahead+drift {
		b.rows.ahead = gain
	}

	b.rows.Begin(sinceBoot+b.rows.ahead, asked, time.Now(), changes)
	return nil
}

// save writes a record of the rows that a step has changed, and of its news, if there are any. It returns false if the generation has ended: then the
// step does not count, and is made again.
func (b *backend) save(g *generation, told *node.Told) (saved bool, err error) {
	changed, err := b.rows.Changed()
	if err != nil {
		return false, damage(err)
	}

	// There is nothing to write. But if the generation has ended its rows are old, and a decision about old rows does not count.
	if len(changed) == 0 && told.Empty() {
		ended, err := g.hasEnded()
		return !ended, err
	}

	r := record{ahead: b.rows.ahead, rows: changed}
	if !told.Empty() {
		r.news = node.AppendNews(nil, &told.News)
	}

	b.buf = r.append(b.buf[:0], g.end)
	if err := g.write(b.buf); err != nil {
		return false, err
	}

	// If the generation ended before the record was written, the next generation may lack the record.
	if ended, err := g.hasEnded(); err != nil || ended {
		return false, err
	}

	g.end += int64(len(b.buf))
	return true, nil
}

// Read implements [node.Backend].
func (b *backend) Read(ctx context.Context, _ []ledger.Key, look func(node.Rows)) (heard node.Heard, err error) {
	if err := b.lockFresh(ctx); err != nil {
		return heard, err
	}
	defer b.unlockRows()

	if err := b.begin(false); err != nil {
		return heard, fail(err)
	}

	look(&b.rows)
	if err := damage(b.rows.Err()); err != nil {
		return heard, fail(err)
	}

	// The node gets each news once.
	heard, b.heard = b.heard, node.Heard{}
	return heard, nil
}

// lockFresh brings the rows up to date from the file, and returns with the rows locked. After an error they are not locked. It returns when ctx
// has ended, even if the file system does not answer.
func (b *backend) lockFresh(ctx context.Context) error {
	select {
	case b.mu <- struct{}{}:
	case <-ctx.Done():
		return b.noAnswer(ctx)
	}

	// Read the file in a goroutine, which keeps the lock until the file system answers. So only one goroutine waits for the file system, however many
	// callers have left.
	fresh := make(chan error)
	go func() {
		err := b.refresh()
		select {
		case fresh <- err: // from here on the lock is the caller's
		case <-ctx.Done(): // the caller has left
			b.unlockRows()
		}
	}()

	select {
	case err := <-fresh:
		if err != nil {
			b.unlockRows()
			return fail(err)
		}
		return nil

	case <-ctx.Done():
		return b.noAnswer(ctx)
	}
}

// noAnswer is the error of a caller that does not wait any longer for the file system.
func (b *backend) noAnswer(ctx context.Context) error {
	return fmt.Errorf("filestore: %s does not answer: %w", b.folder.path, context.Cause(ctx))
}

// refresh applies the steps of other processes, up to the end of the last generation, which it opens. The rows are locked.
func (b *backend) refresh() error {
	if err := b.openIfNone(); err != nil {
		return err
	}

	// A generation that has ended leads to the next one.
	for {
		g := b.gen
		if err := g.read(b.take); err != nil {
			return err
		}

		ended, err := g.hasEnded()
		if err != nil || !ended {
			return err
		}
		if err := b.advance(g); err != nil {
			return err
		}
	}
}

// damage adds errDamaged to the error of rows that could not be read. Every other error stays as it is, such as that of a row that names too
// many nodes to be written. For nil it returns nil.
func damage(err error) error {
	if errors.Is(err, ledger.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// Listen implements [node.Backend].
func (b *backend) Listen(wake func(told bool)) (stop func(), err error) {
	return b.listener.start(func() { wake(false) }), nil
}

// IsDead implements [node.DeathObserver].
func (b *backend) IsDead(node, _ int64) bool { return b.listener.bells.isDead(node) }

// isLeased reports whether a node has a lease in the rows as they were read last, or the clock cannot be read.
func (b *backend) isLeased(node int64) bool {
	b.lockRows()
	defer b.unlockRows()
	sinceBoot, _, err := b.machine.clock()
	return err != nil || b.rows.IsLeased(node, sinceBoot+b.rows.ahead)
}

// OnDeath implements [node.DeathObserver]. The system tells nobody of a pipe that has lost its reader, so nodes ask again.
func (b *backend) OnDeath(func()) {}

// An awayError says that the directory cannot be used now, and may be again: the disk is full, for example. Callers wait.
type awayError struct{ error }

// Unwrap returns the error of the file system.
func (e awayError) Unwrap() error { return e.error }

// Is implements the interface of [errors.Is].
func (awayError) Is(target error) bool { return target == node.ErrAway }

// fail returns an error as a store returns it. Callers wait for trouble that will pass. They are told at once of files that are damaged, that are of
// a different form or machine, or that the program may not use.
func fail(err error) error {
	err = fmt.Errorf("filestore: %w", err)
	var form *FormatError
	switch {
	case errors.Is(err, errDamaged), errors.As(err, &form), errors.Is(err, ErrOtherMachine), errors.Is(err, os.ErrPermission):
		return err
	}
	return awayError{err}
}
