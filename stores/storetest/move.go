package storetest

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A move is one operation on a store, with the expected answer.
type move struct {
	place   string // the file and the line, for failures
	verb    string
	labels  []string // names of the callers that it makes; a name that ends with + adds to those before
	charges []store.Charge
	callers []reference
	numbers []int
	time    *moment
	options map[string]moment
	words   map[string]bool
	times   int // how often: x20
	want    expectation
	program string // which program of a fleet makes it
	own     Move   // if only a fleet has the verb
}

// A Fleet is programs that share budgets, each with a store of its own, and what happens to the
// programs and to their shared part. It is for vectors that only such a store has.
type Fleet struct {
	// Program returns the store of a program, the same whenever it is named. Moves that name no
	// program are made by the program "".
	Program func(name string) store.Store

	// Moves are the possible moves, by their verbs.
	Moves map[string]func(Move)
}

// A Move is a verb that a [Fleet] has beside the verbs of all stores.
type Move struct {
	Place   string          // the file and the line, for failures
	Program string          // who makes it
	Words   []string        // behind the verb; budgets and times are not among them
	Times   []time.Duration // also of numbers, as nanoseconds
	Charges []store.Charge  // of the budgets that are named
}

// A reference names some of the callers with a label.
type reference struct {
	label       string
	first, last int // last is -1 for all up to the end
}

// An expectation is the part of a move behind the arrow.
type expectation struct {
	answers []answer
	held    *store.Budget // the budget that held back, or nil if the move does not say
	paused  bool
	over    *bounds // how much later the start would be if the last charge counted
	fields  []field
	levels  []float64
}

// An answer is the expected answer to one booking.
type answer struct {
	kind   string // "start", "line", "full", "away", "soon"
	bounds        // of the start, or of the guess
	any    bool   // any guess will do
}

// Bounds are a time, or two between which a time lies.
type bounds struct{ low, high moment }

// A field is one number of a status, or two between which it lies.
type field struct {
	name      string
	low, high float64
}

// A reader reads a file of vectors and collects its mistakes.
type reader struct {
	file     string
	line     int
	fleet    bool // a fleet plays: it has programs, and moves of its own
	mistakes []error
}

// wrong notes a mistake in the line that is read.
func (r *reader) wrong(format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf("%s:%d: "+format, append([]any{r.file, r.line}, args...)...))
}

// A scope has the names of one case: its budgets and callers.
type scope struct {
	*reader
	number  int // of the case
	charges map[string]store.Charge
	labels  map[string]bool
	moves   []move
}

// optionWords are words of a move that are followed by a time; plainWords stand
// alone; chargeWords say something of the charge before.
var (
	optionWords = []string{"within", "from", "spread", "horizon", "ago", "took", "reset", "every"}
	plainWords  = []string{"high", "low", "backwards", "turning", "choosing", "fleeting"}
	chargeWords = []string{"shadow", "adaptive", "node", "jitter", "pace", "cost", "leaving"}
)

// isWord reports whether a name has a meaning in the language.
func isWord(name string) bool {
	return slices.Contains(slices.Concat(optionWords, plainWords, chargeWords), name)
}

// number reads a whole number. A number that does not fit into an int of 32 bits stands for store.MaxCost in a program whose int has 32
// bits.
func number(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if n > math.MaxInt {
		n = store.MaxCost
	}
	return int(n), err
}

// number64 is number, and notes text that is no number as a mistake.
func (s *scope) number64(text string) int {
	n, err := number(text)
	if err != nil {
		s.wrong("%q is no number", text)
	}
	return n
}

// times reads how often something is done. Less than once is a mistake, and stands for once.
func (s *scope) times(text string) int {
	n := s.number64(text)
	if n < 1 {
		s.wrong("%q is less than once", text)
	}
	return max(1, n)
}

// moment is parseMoment, and notes text that is no time as a mistake.
func (s *scope) moment(text string) moment {
	m, err := parseMoment(text)
	if err != nil {
		s.wrong("%v", err)
	}
	return m
}

// boundsOf reads a time, or two: 1s~2s.
func (s *scope) boundsOf(text string) bounds {
	low, high, ok := strings.Cut(text, "~")
	b := bounds{low: s.moment(low)}
	b.high = b.low
	if ok {
		b.high = s.moment(high)
	}
	return b
}

// value reads a number or a time.
func (s *scope) value(text string) float64 {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	return float64(s.moment(text).Duration)
}

// sequence expands lists: 1s,2s..5s stands for five times, 1..5 for five numbers.
func (s *scope) sequence(items []string) (all []string) {
	for _, item := range items {
		from, to, ok := strings.Cut(item, "..")
		if !ok {
			all = append(all, item)
			continue
		}

		// Two items in front of the dots give the step. A moment counts in nanoseconds, a number in ones.
		first, second, stepped := strings.Cut(from, ",")
		whole := func(text string) (int64, string) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err == nil {
				return n, ""
			}
			return int64(s.moment(text).Duration), "ns"
		}

		a, _ := whole(first)
		end, unit := whole(to)
		step := int64(1)

		if stepped {
			b, _ := whole(second)
			step = b - a
		}

		if step <= 0 {
			s.wrong("%q does not rise", item)
			return all
		}

		for ; a <= end; a += step {
			all = append(all, strconv.FormatInt(a, 10)+unit)
		}
	}

	return all
}

// multiple says how often: x20.
var multiple = regexp.MustCompile(`^x(\d+)$`)

// variable is a name whose value is put in its place: $name.
var variable = regexp.MustCompile(`\$[a-z]+`)

// substitute puts values in the place of their names: $name. Other names stay.
func substitute(text string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := values[name[1:]]; ok {
			return value
		}
		return name
	})
}

// splitTrim splits a text and trims its parts.
func splitTrim(text, separator string) []string {
	parts := strings.Split(text, separator)
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
