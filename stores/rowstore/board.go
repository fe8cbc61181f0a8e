package rowstore

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// A board is the row by which the nodes of a group tell each other news. It is small, because nodes that wait
// read it again and again: notes are taken down when all nodes that wait have had the time to read them.
type board struct {
	time    int64 // the latest time that any node has seen, if there are many clocks
	last    int64 // the version of the last note, or 0 if there was none
	dropped int64 // the version of the last note that was taken down although a node may still have needed it
	notes   []note
}

// A note is news of one node for others. Its version is the time in microseconds at which it was added, or a little later: so versions
// grow even if the row is lost.
type note struct {
	version, from int64
	all           bool    // the note is for all nodes
	nodes         []int64 // the nodes that the note is for, if it is not for all
	news          []byte
}

const (
	boardForm = 1         // each form has a number of its own
	noteLife  = 3_000_000 // for how many microseconds a note may stay: a node that waits looks once a second at the least
	askLife   = 250_000   // for how many microseconds a note matters that asks a node to come: the node counts as silent after that time
	maxBoard  = 2048      // bytes of notes
)

// errForm says that a row was written by a different version of this package.
var errForm = errors.New("rowstore: a row was written by another version of the program: use one version, or another Name")

// parseBoard returns the board of a row. A row that does not exist has the zero board. Bytes of another form are an errForm, and
// bytes that are no board a [ledger.ErrCorrupt].
func parseBoard(row []byte) (b board, err error) {
	if len(row) == 0 {
		return board{}, nil
	}
	if row[0] != boardForm {
		return board{}, errForm
	}

	u := node.Unpack(row[1:])
	b = board{time: u.Number(), last: u.Number(), dropped: u.Number()}
	for n := u.Number(); n > 0 && !u.Failed(); n-- {
		b.notes = append(b.notes, unpackNote(&u))
	}

	if !u.Done() {
		return board{}, ledger.ErrCorrupt
	}

	return b, nil
}

// bytes returns the row of the board.
func (b *board) bytes() []byte {
	row := []byte{boardForm}
	for _, x := range []int64{b.time, b.last, b.dropped, int64(len(b.notes))} {
		row = binary.AppendVarint(row, x)
	}
	for i := range b.notes {
		row = b.notes[i].append(row)
	}
	return row
}

// append appends the note to b as bytes.
func (n *note) append(b []byte) []byte {
	b = binary.AppendVarint(binary.AppendVarint(b, n.version), n.from)

	// 0 stands for all nodes, and any other number for the number of readers plus 1.
	to := int64(len(n.nodes)) + 1
	if n.all {
		to = 0
	}

	b = binary.AppendVarint(b, to)
	if !n.all {
		for _, reader := range n.nodes {
			b = binary.AppendVarint(b, reader)
		}
	}

	b = binary.AppendVarint(b, int64(len(n.news)))
	return append(b, n.news...)
}

// pin adds a note of the node from, with the news that told has for others, at a time of the store's clock in microseconds. It takes
// down notes that are older than noteLife, and the oldest ones if all are longer than maxBoard: even the new one, if it alone is.
func (b *board) pin(now int64, from int64, told *node.Told) {
	n := note{version: max(b.last+1, now), from: from, all: told.All, nodes: told.Nodes, news: node.AppendNews(nil, &told.News)}
	b.last = n.version
	b.notes = append(b.notes, n)

	// Going back from the newest note, drop the first one that does not stay, and all before it.
	size := 0
	for i := range slices.Backward(b.notes) {
		size += len(b.notes[i].append(nil))
		if size > maxBoard || b.notes[i].version < now-noteLife {
			b.drop(i+1, now)
			return
		}
	}
}

// drop takes down the first n notes, at a time of the store's clock, and sets dropped. A note that only asks nodes to come is no loss after askLife: the
// nodes have come, or others have found them silent.
func (b *board) drop(n int, now int64) {
	for i := range b.notes[:n] {
		if old := &b.notes[i]; old.version > now-askLife || !old.onlyAsks() {
			b.dropped = old.version
		}
	}
	b.notes = b.notes[n:]
}

// onlyAsks reports whether a note only says that lines have moved, which asks nodes to come. A note that cannot be read may say more.
func (n *note) onlyAsks() bool {
	news, err := node.ParseNews(n.news)
	return err == nil && len(news.Called)+len(news.Useless)+len(news.Closed) == 0
}

// since returns the news for the node reader, of all notes that other nodes have added after a version. h.Lost says that
// a note after the version was taken down already, which reader may have needed. The error says that a note cannot be read.
func (b *board) since(version, reader int64) (h node.Heard, err error) {
	h.Lost = b.dropped > version
	for i := range b.notes {
		n := &b.notes[i]
		isFor := n.all || slices.Contains(n.nodes, reader)
		if n.version <= version || n.from == reader || !isFor {
			continue
		}

		news, err := node.ParseNews(n.news)
		if err != nil {
			return h, err
		}

		node.Append(&h.News, news)
	}

	return h, nil
}

// unpackNote reads a note in the form that append has written. A failure is noted in u.
func unpackNote(u *node.Unpacker) note {
	n := note{version: u.Number(), from: u.Number()}
	to := u.Number()
	n.all = to == 0
	for ; to > 1 && !u.Failed(); to-- {
		n.nodes = append(n.nodes, u.Number())
	}
	n.news = u.Bytes(int(u.Number()))
	return n
}
