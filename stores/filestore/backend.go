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

	// What follows is used by whoever holds mu. A step holds it while the file system writes, which may take long, so that a look waits for it no
	// longer than its context lasts: mu is a channel with room for one.
	mu chan struct{}
	directory
	buf []byte
}

// lockRows locks all that mu guards.
func (b *backend) lockRows() { b.mu <- struct{}{} }

// unlockRows unlocks all that mu guards.
func (b *backend) unlockRows() { <-b.mu }

// Step implements [node.Backend].
func (b *backend) Step(_ []ledger.Key, decide func(node.Rows) node.Told) (node.Heard, error) {
	for {
		told, done, err := b.try(decide)
		if err != nil {
			return node.Heard{}, fail(err)
		}

		// Ring for others now that the rows are saved: earlier they would find nothing.
		if done {
			b.listener.tell(&told)
			return node.Heard{}, nil
		}
	}
}

// try makes a step in the present generation, and returns the news of the step for others. done is false if the step must be made again, because
// the generation has ended, or was lost, before the step was saved.
func (b *backend) try(decide func(node.Rows) node.Told) (told node.Told, done bool, err error) {
	// Lock the file before the rows: a process that stands still keeps nobody of this process from looking.
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
	if lost, err := g.isLost(); err != nil || lost {
		if err == nil {
			err = b.find(g)
		}

		// Other nodes now ring in the new directory.
		if err == nil {
			b.listener.again()
		}

		return told, false, err
	}

	// Apply the steps of all other processes before this step is decided.
	if ended, err := b.catchUp(g); err != nil || ended {
		if err == nil {
			err = b.advance(g)
		}
		return told, false, err
	}

	// What earlier files say of this process must be over first: see find.
	if time.Now().Before(b.rests) {
		return told, false, errBack
	}
	if err := b.begin(true); err != nil {
		return told, false, err
	}

	b.rows.Hear(b.heard)
	told = decide(&b.rows)
	saved, err := b.save(g, &told)
	b.rows.End(saved)

	// If the generation has ended before the record was complete, the step is made again in the next generation.
	if err != nil || !saved {
		if err == nil {
			err = b.advance(g)
		}
		return told, false, err
	}

	// The step has used the news.
	b.heard = node.Heard{}

	// End a file that has become long. If that fails the next step tries again.
	if g.end > g.limit {
		_ = b.advance(g)
	}

	return told, true, nil
}

// lock locks the file of a generation. It returns false if other processes keep the lock. If
// the process that has the lock stands still, lock ends the generation.
func (b *backend) lock(g *generation) (locked bool, err error) {
	// If the file grows while its lock is waited for, other processes make steps and nobody stands still.
	before, err := g.f.Stat()
	if err != nil {
		return false, err
	}
	if locked, err = lock(g.f, standstill); locked || err != nil {
		return locked, err
	}

	b.lockRows()
	defer b.unlockRows()
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

	// The file grows, so nobody stands still. The lock that was not granted is still asked for on the open file: open
	// the file anew for the next try.
	return false, b.reopen()
}

// current returns the generation that is open, and opens the last one if none is.
func (b *backend) current() (*generation, error) {
	b.lockRows()
	defer b.unlockRows()
	err := b.openIfNone()
	return b.gen, err
}

// openIfNone opens the last generation if none is open. The rows are locked.
func (b *backend) openIfNone() error {
	if b.gen != nil {
		return nil
	}
	return b.open()
}

// catchUp applies the steps of other processes, and cuts off a record that a killed process has not finished. It
// returns true if the generation was ended and emptied. The file is locked.
func (b *backend) catchUp(g *generation) (ended bool, err error) {
	i, err := g.f.Stat()
	if err != nil {
		return false, err
	}

	// Read the records behind the last known one.
	size := i.Size()
	switch {
	case size == g.end:
		return false, nil
	case size > maxFile:
		return false, fmt.Errorf("%s: %w: it has %d bytes, and no store writes so many", g.path, errDamaged, size)
	case size > g.end:
		if err := g.read(b.take); err != nil {
			return false, err
		}
	}

	switch {
	// The bytes that are left are no record: a process was killed while it wrote them.
	case size > g.end:
		return false, g.cutTorn(size)

	// Only tidy removes records, from a generation that has ended.
	case size < g.end:
		if ended, err := g.hasEnded(); ended || err != nil {
			return ended, err
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

	// The clock follows the wall clock forwards alone, so that it never goes back.
	if gain := wall - sinceBoot; gain > b.rows.ahead+drift {
		b.rows.ahead = gain
	}

	b.rows.Begin(sinceBoot+b.rows.ahead, asked, time.Now(), changes)
	return nil
}

// save writes a record of the rows that a step has changed, and of its news. It returns false if the generation has ended, so that the step
// does not count.
func (b *backend) save(g *generation, told *node.Told) (saved bool, err error) {
	changed, err := b.rows.Changed()
	if err != nil {
		return false, damage(err)
	}

	// Nothing is to be written, but a decision on old rows must not count either.
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

	// A record that came after the end may be missing in the next generation.
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

	heard, b.heard = b.heard, node.Heard{}
	return heard, nil
}

// lockFresh locks the rows and brings them up to date from the file. After an error they are not locked. It returns when ctx
// has ended, whatever the file system does: the lock is then freed when the file system answers.
func (b *backend) lockFresh(ctx context.Context) error {
	select {
	case b.mu <- struct{}{}:
	case <-ctx.Done():
		return b.noAnswer(ctx)
	}

	// The lock is held while the file is read. So only one goroutine waits for the file system, however many callers have left meanwhile.
	fresh := make(chan error)
	go func() {
		err := b.refresh()
		select {
		case fresh <- err: // from here on the lock is the caller's
		case <-ctx.Done():
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

// refresh applies the steps of other processes, up to the end of the last generation. The rows are locked.
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

// damage adds errDamaged to the error of rows that could not be read. Every other error stays as it is: rows
// cannot be written if they name too many nodes.
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

// isLeased reports whether a row says that a node lives, by the rows as they were read last.
func (b *backend) isLeased(node int64) bool {
	b.lockRows()
	defer b.unlockRows()
	sinceBoot, _, err := b.machine.clock()
	return err != nil || b.rows.IsLeased(node, sinceBoot+b.rows.ahead)
}

// OnDeath implements [node.DeathObserver]: nobody is told of a pipe that lost its reader, so nodes ask again.
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
