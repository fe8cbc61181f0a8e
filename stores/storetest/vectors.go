package storetest

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones with summer time, also where the system has none

	"github.com/fleetthrottle/throttle/store"
)

// vectorFiles holds the checks that are lines of text. vectors/README.md describes their language.
//
//go:embed vectors/*.txt
var vectorFiles embed.FS

// vectorLine is a line of a vector as it stands in its file.
type vectorLine struct {
	number int
	text   string
}

// vectorsOf returns the checks of one file. A file with mistakes has no checks, and vectors tells the mistakes.
func vectorsOf(file string) []check {
	all, _ := vectors()
	return all[file]
}

// vectors returns the checks of all files without mistakes, by the files' names, and all mistakes.
var vectors = sync.OnceValues(func() (map[string][]check, error) {
	all := make(map[string][]check)
	files, err := vectorFiles.ReadDir("vectors")
	for _, f := range files {
		text, unread := vectorFiles.ReadFile("vectors/" + f.Name())
		list, wrong := parseVectors(&reader{file: f.Name()}, string(text))
		wrong = errors.Join(unread, wrong)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		name := strings.TrimSuffix(f.Name(), ".txt")
		for _, v := range list {
			all[name] = append(all[name], check{v.name, v.run})
		}
	}
	return all, err
})

var vectorName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*_[A-Z][A-Za-z0-9]*$`)

// parseVectors reads the text of a file of vectors. The error tells all mistakes.
func parseVectors(r *reader, text string) ([]vector, error) {
	var list []vector
	var lines []vectorLine

	// A vector ends where the next begins, or the file.
	end := func() {
		if len(list) > 0 {
			list[len(list)-1].cases = r.cases(lines)
		}
		lines = nil
	}

	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "":
		case strings.HasPrefix(trimmed, "|") && len(lines) > 0:
			lines[len(lines)-1].text += " " + trimmed
		case strings.HasPrefix(line, " "):
			lines = append(lines, vectorLine{i + 1, trimmed})
		default:
			end()
			r.line = i + 1
			if !vectorName.MatchString(trimmed) {
				r.wrong("%q is no name of a vector, like P1_SlidingBurst", trimmed)
			}
			list = append(list, vector{name: trimmed})
		}
	}

	end()
	return list, errors.Join(r.mistakes...)
}

// cases reads the lines of a vector, once for each combination of what its "for" lines say. After a case with a mistake it ends.
func (r *reader) cases(lines []vectorLine) (all [][]move) {
	tables := []map[string]string{{}}
	for _, l := range lines {
		r.line = l.number
		if strings.HasPrefix(l.text, "for ") {
			tables = r.product(tables, strings.TrimPrefix(l.text, "for "))
		}
	}

	// Read the lines once for each combination. After the first mistake the rest would repeat it.
	for i, values := range tables {
		s := &scope{reader: r, number: i, charges: make(map[string]store.Charge), labels: make(map[string]bool)}
		before := len(r.mistakes)

		for _, l := range lines {
			r.line = l.number
			if !strings.HasPrefix(l.text, "for ") {
				s.read(substitute(l.text, values))
			}
		}

		all = append(all, s.moves)
		if len(r.mistakes) > before {
			break
		}
	}

	return all
}

// product returns each table combined with each case of a line "for NAMES in CASE | CASE": several names,
// and their values, are set apart by semicolons. A case with too many or too few values is a mistake.
func (r *reader) product(tables []map[string]string, text string) (all []map[string]string) {
	head, list, ok := strings.Cut(text, " in ")
	names := splitTrim(head, ";")
	for _, table := range tables {
		for _, one := range splitTrim(list, "|") {
			values := []string{one}
			if len(names) > 1 {
				values = splitTrim(one, ";")
			}

			if !ok || len(values) != len(names) {
				r.wrong("%d values for %d names in %q", len(values), len(names), one)
				continue
			}

			next := maps.Clone(table)
			for i, name := range names {
				next[name] = values[i]
			}

			all = append(all, next)
		}
	}

	return all
}

// A verb has the subject of a move, the form of its expectation, and its action.
type verb struct {
	needs string // parts that the move must have: see needs
	wants int    // what stands behind the arrow
	do    func(*play, *move)
}

// verbs are all moves; vectors/README.md describes them.
var verbs = map[string]verb{
	"at":   {"time", nothing, (*play).passes},
	"wait": {"time", nothing, (*play).passes},

	"book":    {"charge", answers, (*play).books},
	"try":     {"charge", answers, (*play).books},
	"again":   {"caller", answers, eachCaller((*play).bookAgain)},
	"board":   {"caller", nothing, eachCaller((*play).boards)},
	"cancel":  {"caller", nothing, eachCaller((*play).cancel)},
	"release": {"caller", nothing, eachCaller((*play).release)},
	"settle":  {"caller number", nothing, eachCaller((*play).settles)},
	"called":  {"caller", nothing, eachCaller((*play).checkCalled)},
	"waits":   {"caller", nothing, eachCaller((*play).checkWaiting)},

	"pause":  {"charge time", nothing, eachBudget((*play).pauses)},
	"resume": {"charge", nothing, eachBudget((*play).resumes)},
	"refuse": {"charge", levels, eachBudget((*play).refuse)},
	"states": {"charge number", nothing, eachBudget((*play).tellQuota)},
	"status": {"charge", statuses, eachBudget((*play).checkStatus)},
	"shows":  {"charge", statuses, eachBudget((*play).checkStatus)},

	"watch":   {"who", guesses, (*play).watches},
	"move":    {"caller", answers, eachCaller((*play).moveOn)},
	"stop":    {"caller", nothing, eachCaller((*play).stop)},
	"good":    {"caller", nothing, eachCaller((*play).checkGood)},
	"bad":     {"caller", nothing, eachCaller((*play).checkBad)},
	"useless": {"caller", nothing, eachCaller((*play).checkUseless)},
	"quiet":   {"caller", nothing, eachCaller((*play).checkQuiet)},
	"deaf":    {"caller", nothing, eachCaller((*play).watchDeaf)},

	"come":    {"who", guesses, (*play).come},
	"leave":   {"caller", nothing, eachCaller((*play).leave)},
	"change":  {"caller charge", nothing, eachCaller((*play).change)},
	"return":  {"caller", nothing, eachCaller((*play).comeBack)},
	"begin":   {"caller", answers, (*play).checkBegun},
	"set":     {"caller", answers, (*play).checkBegunSet},
	"over":    {"caller time", nothing, (*play).checkOver},
	"order":   {"caller", nothing, (*play).checkOrder},
	"most":    {"caller number time", nothing, (*play).checkAtMost},
	"busy":    {"charge", nothing, eachBudget((*play).checkBusy)},
	"gapless": {"charge caller time", nothing, (*play).checkGapless},
	"near":    {"caller number", nothing, (*play).checkNear},

	"crowd":  {"charge", guesses, (*play).crowd},
	"ride":   {"charge", nothing, (*play).ride},
	"queue":  {"charge", answers, (*play).queue},
	"steady": {"charge", nothing, (*play).steady},
}

// eachCaller returns a move that does something for each caller that it names, as the program of that caller.
func eachCaller(do func(*play, *move, *caller)) func(*play, *move) {
	return func(p *play, m *move) {
		p.Helper()
		for _, c := range p.of(m) {
			p.enter(c.program)
			do(p, m, c)
		}
		p.calm()
	}
}

// eachBudget returns a move that does something for each budget that it names.
func eachBudget(do func(*play, *move, store.Charge)) func(*play, *move) {
	return func(p *play, m *move) {
		p.Helper()
		for _, c := range m.charges {
			do(p, m, c)
		}
		p.calm()
	}
}

// A vector is a check as text: its moves, once for each case.
type vector struct {
	name  string
	cases [][]move
}

// run plays all cases on one store in order, each on budgets of its own and from a
// full hour on.
func (v vector) run(b *bench) {
	b.Helper()
	for i, moves := range v.cases {
		if i > 0 {
			b.place = ""
			b.at((b.now() + 2*time.Hour).Truncate(time.Hour))
			b.zero = time.Now()
		}
		p := &play{bench: b, known: make(map[string][]*caller)}
		p.play(moves, i)
	}
}

// play makes the moves of the i-th case. A panic ends it with a failure: it is a mistake of the store, or a mistake in a move
// that shows only now, such as a caller that should be a visitor.
func (p *play) play(moves []move, i int) {
	p.Helper()
	defer func() {
		if why := recover(); why != nil {
			p.fatalf("the move cannot be made: %v\n%s", why, debug.Stack())
		}
	}()

	for j := range moves {
		m := &moves[j]
		p.enter(m.program)
		p.place = m.place
		if i > 0 {
			p.place += fmt.Sprintf("case %d: ", i+1)
		}
		if v, ok := verbs[m.verb]; ok {
			v.do(p, m)
		} else {
			p.happens(m)
		}
	}
}

// happens makes a move whose verb only the fleet has. It fails if the fleet does not have it.
func (p *play) happens(m *move) {
	p.Helper()
	do, ok := p.fleet.Moves[m.verb]
	if !ok {
		p.fatalf("%q is no move", m.verb)
	}
	do(m.own)
	p.calm()
}

// read reads a line: budgets and moves, or a loop of them.
func (s *scope) read(text string) {
	if loop, ok := strings.CutPrefix(text, "every "); ok {
		head, body, _ := strings.Cut(loop, ": ")
		name, list, _ := strings.Cut(head, " in ")
		for _, value := range s.sequence(strings.Fields(list)) {
			s.read(substitute(body, map[string]string{name: value}))
		}

		return
	}

	for _, part := range splitTrim(text, ";") {
		if name, limit, ok := strings.Cut(part, " = "); ok {
			s.define(strings.TrimSpace(name), limit)
		} else {
			s.move(part)
		}
	}
}

// define reads a budget: its limit and the known fields of its charges. A name that is
// defined again is the same budget under a new limit.
func (s *scope) define(name, text string) {
	parts := splitTrim(text, ",")
	limit, err := store.ParseLimit(parts[0])
	if err != nil {
		s.wrong("%q is no limit that throttle.ParseLimit reads", parts[0])
	}

	// Each combination has budgets of its own.
	own := name
	if s.number > 0 {
		own = fmt.Sprint(s.number, " ", name)
	}

	c := charge(own, limit)
	if old, ok := s.charges[name]; ok {
		c.Budget = old.Budget
	}

	// What stands behind the limit is a field of the charge, or the budget of a different name.
	for _, part := range parts[1:] {
		words := strings.Fields(part)
		if len(words) == 2 && (words[0] == "key" || words[0] == "beside") {
			other, ok := s.charges[words[1]]
			c.Budget = other.Budget
			if !ok {
				s.wrong("%q is no budget", words[1])
			}
			if words[0] == "beside" {
				c.Budget.Key[15] = 1 // differs in the last place of the key only
			}
		} else if n := s.attribute(&c, words); n != len(words) || n == 0 {
			s.wrong("%q says nothing of a budget", part)
		}
	}

	if s.labels[name] || isWord(name) {
		s.wrong("%q is a caller, or a word of the language", name)
	}

	s.charges[name] = c
}

// attribute reads a field of a charge from the front of words, and returns of how many words the field consists: 0 if there is
// none. A field without its value is a mistake, and consists of two words all the same.
func (s *scope) attribute(c *store.Charge, words []string) int {
	if len(words) == 0 {
		return 0
	}
	value := ""
	if len(words) > 1 {
		value = words[1]
	}

	switch words[0] {
	case "shadow":
		c.Shadow = true
	case "adaptive":
		c.Adaptive = true
	case "node":
		c.Node = true
	case "jitter":
		c.Jitter = s.moment(value).Duration
		return 2
	case "pace":
		c.Pace = s.moment(value).Duration
		return 2
	case "cost":
		c.Cost = s.number64(value)
		return 2
	case "leaving":
		c.KeepFree = s.number64(value)
		return 2
	default:
		return 0
	}

	return 1
}

// move reads a move.
func (s *scope) move(text string) {
	head, want, expects := strings.Cut(text, "->")
	m := move{place: fmt.Sprintf("%s:%d: ", s.file, s.line), options: make(map[string]moment), words: make(map[string]bool), times: 1}
	if labels, rest, ok := strings.Cut(head, ": "); ok {
		m.labels, head = strings.Fields(labels), rest
	}

	// The verb comes first, and then the parts of the move in any order.
	words := strings.Fields(strings.ReplaceAll(head, ",", " "))
	if len(words) == 0 {
		s.wrong("no move in %q", text)
		return
	}

	m.verb = words[0]
	if _, ok := verbs[m.verb]; !ok && s.fleet {
		s.own(&m, words[1:])
		return
	}

	for words = words[1:]; len(words) > 0; {
		n := s.word(&m, words)
		words = words[min(n, len(words)):] // the last field may lack its value
	}

	if v, ok := verbs[m.verb]; !ok {
		s.wrong("%q is no move", m.verb)
	} else {
		s.want(&m, v.wants, strings.TrimSpace(want), expects)
		s.needs(&m, v.needs)
	}

	for _, label := range m.labels {
		if _, ok := s.charges[label]; ok || isWord(label) {
			s.wrong("%q is a budget, or a word of the language", label)
		}
		s.labels[strings.TrimSuffix(label, "+")] = true
	}

	s.moves = append(s.moves, m)
}

// own reads the words behind the verb of a move that only a fleet has.
func (s *scope) own(m *move, words []string) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if c, ok := s.charges[word]; ok {
			m.own.Charges = append(m.own.Charges, c)
		} else if n, err := strconv.Atoi(word); err == nil {
			m.own.Times = append(m.own.Times, time.Duration(n))
		} else if at, err := parseMoment(word); err == nil {
			m.own.Times = append(m.own.Times, at.Duration)
		} else if word == "by" && i+1 < len(words) {
			i++
			m.program = words[i]
		} else {
			m.own.Words = append(m.own.Words, word)
		}
	}

	m.own.Place, m.own.Program = m.place, m.program
	s.moves = append(s.moves, *m)
}

// needs notes parts that a move needs and does not have. who is a caller or a budget.
func (s *scope) needs(m *move, needs string) {
	isMissing := map[string]bool{
		"charge": len(m.charges) == 0,
		"caller": len(m.callers) == 0,
		"who":    len(m.charges)+len(m.callers) == 0,
		"number": len(m.numbers) == 0,
		"time":   m.time == nil,
	}
	for _, need := range strings.Fields(needs) {
		if isMissing[need] {
			s.wrong("%s without a %s", m.verb, need)
		}
	}
}

// several is a label with some of its callers: see reference.
var several = regexp.MustCompile(`^([a-z]+)(?:\[(\d+)(\.\.)?(\d+)?\])?$`)

// word reads one part of a move from the front of words, and returns of how many words the part consists.
func (s *scope) word(m *move, words []string) int {
	word := words[0]

	// Behind a budget, a word may be a field of its charge.
	if len(m.charges) > 0 {
		if n := s.attribute(&m.charges[len(m.charges)-1], words); n > 0 {
			return n
		}
	}

	if c, ok := s.charges[word]; ok {
		m.charges = append(m.charges, c)
		return 1
	}

	if x := multiple.FindStringSubmatch(word); x != nil {
		m.times = s.times(x[1])
		return 1
	}

	// All else is a word of the language, a caller, a number or a time.
	switch parts := several.FindStringSubmatch(word); {
	case word == "by" && s.fleet && len(words) > 1:
		m.program = words[1]
		return 2
	case slices.Contains(plainWords, word):
		m.words[word] = true
	case slices.Contains(optionWords, word) && len(words) > 1:
		m.options[word] = s.moment(words[1])
		return 2
	case parts != nil && s.labels[parts[1]]:
		m.callers = append(m.callers, s.reference(parts))
	case strings.ContainsAny(word[:1], "0123456789+-") || word == "now":
		s.numberOrTime(m, word)
	default:
		s.wrong("%q is neither a budget, nor a caller, nor a word of the language", word)
	}

	return 1
}

// numberOrTime reads a word that is a number, a time, or both.
func (s *scope) numberOrTime(m *move, word string) {
	n, numberErr := number(word)
	if numberErr == nil {
		m.numbers = append(m.numbers, n)
	}

	t, timeErr := parseMoment(word)
	if timeErr == nil {
		m.time = &t
	}

	if numberErr != nil && timeErr != nil {
		s.wrong("%v", timeErr)
	}
}

// reference reads the callers of a label: line, line[3], line[3..8], line[3..].
func (s *scope) reference(parts []string) reference {
	ref := reference{label: parts[1], last: -1}
	if parts[2] != "" {
		ref.first = s.number64(parts[2])
		ref.last = ref.first
		if parts[4] != "" {
			ref.last = s.number64(parts[4])
		} else if parts[3] != "" {
			ref.last = -1
		}
	}
	return ref
}
