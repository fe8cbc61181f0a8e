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

// A directory is what a process knows of the files of a directory.
type directory struct {
	folder  *folder
	machine machine
	boot    string
	grow    int64         // by how many bytes a file grows at the least before it is ended
	lease   time.Duration // of the node

	gen        *generation // the generation in use. It is nil if none is open.
	used       bool        // the process has used a generation of this boot
	rows       rows
	heard      node.Heard // the news of other processes that no step or look has got yet
	restsUntil time.Time  // until then the process makes no steps: see find
}

// A machine has the common facts of all programs of one machine.
type machine interface {
	// boot returns a name of this boot, unique among all boots of all machines.
	boot() (string, error)

	// clock returns the microseconds since the boot, and the microseconds of the wall clock since the Unix epoch. The time since the boot
	// goes on while the machine is suspended, and does not change when somebody sets the clock.
	clock() (sinceBoot, wall int64, err error)
}

// drift is by how many microseconds the wall clock must be further ahead before the store's clock follows it: smaller differences come from
// reading the two clocks one after the other, and from NTP.
const drift = 100_000

// errBack says why a process makes no steps: see find.
var errBack = errors.New("the files are those of an earlier time, and this process waits until what they say of it is over")

// take applies a record that was read from a file, and keeps its news.
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

// looksForNext is how many times a process looks for a generation that a different process is writing.
const looksForNext = 50

// advance ends a generation and opens the last one. It writes the next generation unless a different process does. The rows are locked.
func (d *directory) advance(g *generation) error {
	// A new directory may have taken the place of this one: the next generation belongs there.
	if err := d.folder.reopen(); err != nil {
		return err
	}
	if err := d.endGeneration(g); err != nil {
		return err
	}
	return d.open()
}

// find opens the last generation in the directory, because the file of g may be lost. If the directory has no generation, find writes one with the rows of g.
//
// If isLost is true, somebody may have put back an earlier copy. Its rows list waiters of this process that have long had their turn. While the process makes steps it
// renews their leases, and lines would stand still behind them. So it makes no steps until its leases in these rows are over.
func (d *directory) find(g *generation, isLost bool) error {
	// The file of g is still open: apply its last records.
	if err := g.read(d.take); err != nil {
		return err
	}

	// Other files may not have all news of the lost file.
	d.heard.Lost = true

	// Opening a generation makes a new table, so known stays as it is.
	known := d.rows.Table
	if err := d.open(); err != nil {
		return err
	}

	// A file that is not lost may have records of after the end of its generation, which do not count: the next generation is no earlier copy.
	if isLost && d.rows.IsBefore(&known) {
		d.restsUntil = time.Now().Add(d.lease + d.lease/10)
	}

	return nil
}

// number returns the number of the generation, which is in the name of its file.
func (g *generation) number() int64 { return g.generation }

// endGeneration ends a generation, applies its last records, and writes the next generation unless a different process has done so. It opens nothing.
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
		// A different process has ended the generation, and will most likely write the next one: give it some time.
		for range looksForNext {
			last, err := newest(d.folder)
			if err != nil {
				return err
			}
			if last > g.number() {
				return g.read(d.take) // the last records may have news
			}
			runtime.Gosched()
		}
	}

	// Other processes could write records until the generation was ended, so read it only now.
	if err := g.read(d.take); err != nil {
		return err
	}

	return d.writeNext(g)
}

// writeNext writes the generation after g with the rows that the process knows, unless the directory has that generation or a later one. g has ended and
// was read to its end. For nil writeNext writes the first generation.
func (d *directory) writeNext(g *generation) error {
	sinceBoot, wall, err := d.machine.clock()
	if err != nil {
		return err
	}

	next := header{generation: 1, boot: d.boot}
	ahead := wall - sinceBoot

	if g != nil {
		next.generation = g.number() + 1

		// Within one boot the store's clock goes on from the time that the rows have. A wall clock that is more than drift further ahead is
		// followed up to that drift.
		if g.boot == d.boot {
			ahead = max(d.rows.ahead, ahead-drift)
		}
	}

	return createGeneration(d.folder, next, func(put func(*record) error) error {
		return d.rows.write(sinceBoot+ahead, ahead, put)
	})
}

// maxOpen is how many times a process tries to open the last generation, whose file may be removed each time before it is open.
const maxOpen = 1000

// open opens the last generation and takes it into use. If there is none, if the last one has ended, or if it is of an earlier boot, open writes the next one first.
func (d *directory) open() error {
	if err := d.folder.reopen(); err != nil {
		return err
	}

	// Each round looks for the last generation, and takes it into use or writes the next one.
	for range maxOpen {
		last, err := newest(d.folder)
		if err != nil {
			return err
		}

		// This process is the first, or the files were removed. If it has used a generation, the next one gets the rows that it knows.
		if last == 0 {
			if d.gen == nil {
				d.rows.clear()
			}
			if err := d.writeNext(d.gen); err != nil {
				return err
			}
			continue
		}

		g, err := openGeneration(d.folder, last)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was removed meanwhile
		}

		// A power failure may have cut the file of an earlier boot short: its rows are lost, and the next generation begins without rows.
		if errors.Is(err, errDamaged) && last < maxNumber && d.isOlderThanBoot(nameOf(last)) {
			d.rows.clear()
			if err := d.writeNext(&generation{header: header{generation: last}}); err != nil {
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

// isOlderThanBoot reports whether a file is a regular file that was last written to before the machine was started. After an error it is false.
func (d *directory) isOlderThanBoot(name string) bool {
	i, err := d.folder.root.Load().Lstat(name)
	if err != nil || !i.Mode().IsRegular() {
		return false
	}

	sinceBoot, wall, err := d.machine.clock()
	return err == nil && i.ModTime().UnixMicro() < wall-sinceBoot
}

// load takes a generation into use, and reads its records. done is false if the generation has ended, or is of a different boot: then load
// sees to it that there is a later generation. If this process has used a generation of this boot before, the error for a different boot is
// ErrOtherMachine.
func (d *directory) load(g *generation) (done bool, err error) {
	if g.boot != d.boot && d.used {
		return false, errors.Join(ErrOtherMachine, g.f.Close())
	}

	// A file is emptied when there are two later files. So if the process has not seen a generation, it may have missed news.
	d.heard.Lost = d.heard.Lost || d.gen != nil && g.generation > d.gen.generation+1
	d.rows.clear()

	// Leave the file of the former generation to the garbage collector: a goroutine may still wait for its lock.
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

	// The first generation that the process uses has news from before the process: drop them.
	if !d.used {
		d.used, d.heard = true, node.Heard{}
	}

	// Ending a file writes all rows anew, so a file with many rows may grow to a greater length before.
	g.limit = min(4*g.end+d.grow, maxFile/2)
	tidy(d.folder, g.number())
	return true, nil
}
