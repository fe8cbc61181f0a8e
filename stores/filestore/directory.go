package filestore

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/fleetthrottle/throttle/internal/node"
)

// ErrOtherMachine says that programs of a different machine use the directory. Locks and clocks
// of a machine are its own, so budgets cannot be shared in that way.
var ErrOtherMachine = errors.New("filestore: programs of another machine, or of an earlier boot, use the directory: only programs of one machine can share it")

// A directory has the process' knowledge of the files of a directory.
type directory struct {
	folder  *folder
	machine machine
	boot    string
	grow    int64         // by how much a file grows at the least before it is ended
	lease   time.Duration // of the node

	gen   *generation // nil if none is open
	used  bool        // a generation of this boot was open
	rows  rows
	heard node.Heard // the news of other processes that was not returned yet
	rests time.Time  // until then the process makes no steps
}

// A machine has the common facts of all programs of one machine.
type machine interface {
	// boot returns a name of this boot, unique among all boots of all machines.
	boot() (string, error)

	// clock returns the microseconds since the boot, suspended ones too, which no setting of the
	// clock changes, and the microseconds of the wall clock since the Unix epoch.
	clock() (sinceBoot, wall int64, err error)
}

// drift is by how many microseconds the wall clock has to be ahead to be followed: the clocks are
// read one after the other, and disciplined with small differences.
const drift = 100_000

// errBack says why a process rests.
var errBack = errors.New("the files are those of an earlier time, and this process waits until what they say of it is over")

// take applies a record of a different process, and keeps its news.
func (d *directory) take(r record) error {
	d.rows.take(&r)
	if len(r.news) == 0 {
		return nil
	}

	n, err := node.ParseNews(r.news)
	if err != nil {
		return errors.Join(errDamaged, err)
	}

	node.Append(&d.heard.News, n)
	return nil
}

// looksForNext is how often a process looks for a generation that is being written by a different process.
const looksForNext = 50

// advance ends a generation and opens the next one, which it writes unless a different process does.
func (d *directory) advance(g *generation) error {
	// A new directory may have taken the place of this one.
	if err := d.folder.reopen(); err != nil {
		return err
	}
	if err := d.endGeneration(g); err != nil {
		return err
	}
	return d.open()
}

// find opens the last generation in the directory, because this generation's file is lost. Without any generation it writes a new one.
//
// If somebody has put back an earlier copy, its rows list waiters of this process that have long had their turn, and lines would stand still behind
// them for as long as the process lives. So the process rests until its lease is over in all rows.
func (d *directory) find(g *generation) error {
	// The lost file is still open: apply its last records.
	if err := g.read(d.take); err != nil {
		return err
	}

	d.heard.Lost = true // a program may have begun anew
	known := d.rows.Table
	if err := d.open(); err != nil {
		return err
	}
	if d.rows.IsBefore(&known) {
		d.rests = time.Now().Add(d.lease + d.lease/10)
	}

	return nil
}

// number returns the number of the generation, by which its file is named.
func (g *generation) number() int64 { return g.generation }

// endGeneration ends a generation, applies its last records, and writes the next generation unless a different process does.
func (d *directory) endGeneration(g *generation) error {
	ended, err := g.hasEnded()
	if err != nil {
		return err
	}

	if !ended {
		if err := g.markEnded(); err != nil {
			return err
		}
	} else {
		// A different process has ended the generation, and will most likely write the next one.
		for range looksForNext {
			if last, err := newest(d.folder); err != nil {
				return err
			} else if last > g.number() {
				return g.read(d.take) // records that were written just before the end may have news
			}
			runtime.Gosched()
		}
	}

	// Records could be written until the generation was ended.
	if err := g.read(d.take); err != nil {
		return err
	}

	return d.succeed(g)
}

// succeed writes the generation after g, which has ended and was read to its end. For nil it writes the first generation.
func (d *directory) succeed(g *generation) error {
	sinceBoot, wall, err := d.machine.clock()
	if err != nil {
		return err
	}

	next := header{1, d.boot}
	ahead := wall - sinceBoot

	if g != nil {
		next.generation = g.number() + 1

		// Within one boot the clock goes on from where the rows have it, or drift behind a wall clock that is further ahead.
		if g.boot == d.boot {
			ahead = max(d.rows.ahead, ahead-drift)
		}
	}

	return create(d.folder, next, func(write func(*record) error) error {
		return d.rows.write(sinceBoot+ahead, ahead, write)
	})
}

// reopen opens the generation's file anew, or a later generation. News may have been lost meanwhile.
func (d *directory) reopen() error {
	d.gen, d.heard.Lost = nil, true
	return d.open()
}

// maxOpen is how often a process looks for the last generation, which may be removed each time before the process has opened it.
const maxOpen = 1000

// open opens the last generation and takes it into use. Without any generation open writes one.
func (d *directory) open() error {
	if err := d.folder.reopen(); err != nil {
		return err
	}

	// Each round opens the generation that is the last by then. It may be of no use: removed, ended, or of an earlier boot.
	for range maxOpen {
		last, err := newest(d.folder)
		if err != nil {
			return err
		}

		// This process is the first, or the files were removed.
		if last == 0 {
			if d.gen == nil {
				d.rows.clear()
			}
			if err := d.succeed(d.gen); err != nil {
				return err
			}
			continue
		}

		g, err := openGeneration(d.folder, last)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was removed meanwhile
		}

		// A power failure may have cut the file short, and nobody needs rows of an earlier boot.
		if errors.Is(err, errDamaged) && last < maxNumber && d.isOlderThanBoot(nameOf(last)) {
			d.rows.clear()
			if err := d.succeed(&generation{header: header{generation: last}}); err != nil {
				return err
			}
			continue
		}

		if err != nil {
			return err
		}

		if done, err := d.load(g); done || err != nil {
			return err
		}
	}

	return fmt.Errorf("%s: its files are removed again and again", d.folder.path)
}

// isOlderThanBoot reports whether a file was written before the machine was started: what had not got
// to the disk when the power failed is missing, and no program wants it back.
func (d *directory) isOlderThanBoot(name string) bool {
	i, err := d.folder.root.Load().Lstat(name)
	if err != nil || !i.Mode().IsRegular() {
		return false
	}

	sinceBoot, wall, err := d.machine.clock()
	return err == nil && i.ModTime().UnixMicro() < wall-sinceBoot
}

// load takes a generation into use. It returns false if the generation has ended, or is of an earlier
// boot: a later generation is written by the time that load returns. If this process has used a generation
// of this boot before, a different boot is ErrOtherMachine.
func (d *directory) load(g *generation) (done bool, err error) {
	if g.boot != d.boot && d.used {
		return false, errors.Join(ErrOtherMachine, g.f.Close())
	}

	// A file is emptied when there are two later files. So a process that has missed a generation may have missed records, too.
	d.heard.Lost = d.heard.Lost || d.gen != nil && g.generation > d.gen.generation+1
	d.rows.clear()

	// The garbage collector closes the file of the former generation: a goroutine may still wait for its lock.
	d.gen = g

	if err := g.read(d.take); err != nil {
		d.gen = nil
		return false, errors.Join(err, g.f.Close())
	}

	ended, err := g.hasEnded()
	if err != nil {
		return false, err
	}
	if ended || g.boot != d.boot {
		return false, d.endGeneration(g)
	}

	// News in the first generation that the process reads is from before this process.
	if !d.used {
		d.used, d.heard = true, node.Heard{}
	}

	// A file with many rows may grow for longer, because ending it writes all rows anew.
	g.limit = min(4*g.end+d.grow, maxFile/2)
	tidy(d.folder, g.number())
	return true, nil
}
