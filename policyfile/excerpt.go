package policyfile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v4"
)

// printable returns what an excerpt shows of a character: a control character would
// steer the terminal.
func printable(c rune) rune {
	if c != '\t' && !unicode.IsPrint(c) && c != '　' {
		return '�'
	}
	return c
}

// blank returns a space as wide as a character, or "" for a combining mark, which has no width. Tabs
// stay, so that the caret stands below its character wherever tabs end.
func blank(c rune) string {
	switch {
	case c == '\t':
		return "\t"
	case unicode.In(c, unicode.Mn, unicode.Me):
		return ""
	case wide(c):
		return "　"
	}
	return " "
}

// wide reports whether a character takes two columns of a terminal: East Asian characters and
// pictures.
func wide(c rune) bool {
	return c >= 0x1100 && c <= 0x115f || c >= 0x2e80 && c <= 0xa4cf || c >= 0xac00 && c <= 0xd7a3 ||
		c >= 0xf900 && c <= 0xfaff || c >= 0xfe30 && c <= 0xfe6f || c >= 0xff00 && c <= 0xff60 || c >= 0xffe0 && c <= 0xffe6 ||
		c >= 0x1f300 && c <= 0x1f64f || c >= 0x1f680 && c <= 0x1f6ff || c >= 0x1f900 && c <= 0x1f9ff || c >= 0x20000 && c <= 0x3fffd
}

const (
	mostBefore = 50  // characters of a line that an excerpt shows before the column
	mostWindow = 100 // and in all
)

// A sourceLine is one line of a file. It finds the characters of a long line without
// counting them anew for each mistake.
type sourceLine struct {
	text  string
	marks []int // where every markEvery-th character begins, or nil before they are counted
}

const markEvery = 256

// splitLines returns the lines of a text without their ends. Lines end as in YAML: with LF, CR or CR LF.
func splitLines(text string) (lines []sourceLine) {
	for {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(lines, sourceLine{text: text})
		}
		lines = append(lines, sourceLine{text: text[:i]})

		// CR LF ends one line, not two.
		if strings.HasPrefix(text[i:], "\r\n") {
			i++
		}
		text = text[i+1:]
	}
}

// at returns the offset of the byte at which a column begins, or the line's length for a column behind
// its end. The first column is 1, and a lower column counts as 1. The first call sets the line's marks.
func (l *sourceLine) at(column int) int {
	// With marks later calls need not count from the beginning of the line.
	if l.marks == nil {
		n := 0
		for i := range l.text {
			if n%markEvery == 0 {
				l.marks = append(l.marks, i)
			}
			n++
		}

		// The end of the line is a mark, too: for a column far behind the end there is nothing to count.
		l.marks = append(l.marks, len(l.text))
	}

	// Count from the last mark that is not behind the column.
	before := max(column-1, 0) // characters before the column
	mark := min(before/markEvery, len(l.marks)-1)
	from := l.marks[mark]

	remaining := before - mark*markEvery
	for i := range l.text[from:] {
		if remaining == 0 {
			return from + i
		}
		remaining--
	}

	return len(l.text)
}

// window returns the part of the line around a column, how many characters of the line stand before
// that part, and whether some stand behind it.
func (l *sourceLine) window(column int) (part string, skipped int, cut bool) {
	// A line that fits into the window stays whole.
	if l.at(mostWindow+1) < len(l.text) {
		skipped = max(column-1-mostBefore, 0)
	}

	part = l.text[l.at(skipped+1):]
	n := 0
	for i := range part {
		if n == mostWindow {
			return part[:i], skipped, true
		}
		n++
	}
	return part, skipped, false
}

// didYouMean returns a hint with the name nearest to the written text, or "" if no name is near.
func didYouMean(written string, names []string) string {
	written = strings.ToLower(written)
	length := utf8.RuneCountInString(written)

	best, distance := "", 0
	for _, name := range names {
		// About a third of the letters may differ: at least one, but never all of them.
		n := utf8.RuneCountInString(name)
		most := min(max(1, (n+1)/3), n-1)

		// The length alone rules most names out, so their distance need not be computed.
		if length-n > most || n-length > most {
			continue
		}
		if d := levenshtein.ComputeDistance(written, strings.ToLower(name)); d <= most && (best == "" || d < distance) {
			best, distance = name, d
		}
	}

	if best == "" {
		return ""
	}

	return fmt.Sprintf(" (did you mean %q?)", best)
}

// hint is didYouMean for names from the file. There may be many of them, so mistakes that are not
// printed get no hint.
func (r *reader) hint(written string, names []string) string {
	if len(r.errs) > mostShown {
		return ""
	}
	return didYouMean(written, names)
}

// oddSpace returns a hint if a space stands before or behind a text, also a space without width. Otherwise
// it returns "".
func oddSpace(text string) string {
	odd := func(c rune) bool { return unicode.IsSpace(c) || unicode.Is(unicode.Cf, c) }
	if strings.TrimFunc(text, odd) != text {
		return " (a space that is not a plain one stands before or behind it)"
	}
	return ""
}

// joined is a name and a value without the space between them, or with a colon that is
// full-width.
var joined = regexp.MustCompile(`^([A-Za-z_][\w-]*)(?::|：\s*)([^\s/:]\S{0,40})`)

// missingSpace returns a hint if a text is a field whose colon has no space behind it, and "" otherwise.
func missingSpace(text string) string {
	if m := joined.FindStringSubmatch(text); m != nil {
		return " (write a colon and a space: \"" + m[1] + ": " + m[2] + "\")"
	}
	return ""
}

// plainSigns returns the plain form of a full-width sign, as an input method writes it. It returns -1,
// at which strings.Map drops the sign, for a quote of print, as a word processor writes it.
var plainSigns = func(c rune) rune {
	switch {
	case c >= '！' && c <= '～':
		return c - '！' + '!'
	case c == '　':
		return ' '
	case c == '“' || c == '”' || c == '‘' || c == '’':
		return -1
	}
	return c
}

// plainSpelling returns a hint if a text has full-width signs or quotes of print, and "" otherwise.
func plainSpelling(text string) string {
	if plain := strings.Map(plainSigns, clip(text)); plain != clip(text) {
		return fmt.Sprintf(" (it has full-width signs or quotes of print: write %q)", plain)
	}
	return ""
}

// The YAML library reports where it could not go on, which is often a line behind the mistake, in
// words of its grammar. The functions below look for the mistake itself.

// failYAML notes an error of the YAML library as one mistake: of several errors the first counts.
func (r *reader) failYAML(err error) {
	var e *yaml.LoadError
	var all *yaml.LoadErrors
	if !errors.As(err, &e) && errors.As(err, &all) && len(all.Errors) > 0 {
		e = all.Errors[0]
	}

	switch {
	case e == nil:
		r.failAt(1, 1, "%v", err)
	case strings.Contains(e.Message, "no documents"):
		r.failAt(1, 1, "%s", emptyFile)
	case strings.Contains(e.Message, "multiple"):
		r.failAt(r.secondDocument(), 1, "a second document begins here; a file is one: join them, with one \"version: 1\"")
	default:
		hasSlip := r.failSlip(e)
		if !hasSlip {
			r.failSyntax(e)
		}
	}
}

// secondDocument returns the line in which a second document begins, or 1 if it finds none.
func (r *reader) secondDocument() int {
	begun := false // a line of the first document has been seen, which may be its "---"
	ended := false // "..." has ended the first document
	for i := range r.lines {
		switch line := r.lines[i].text; {
		case strings.HasPrefix(line, "---") && begun:
			return i + 1
		case strings.HasPrefix(line, "..."):
			ended = true
		case line == "" || line[0] == '#' || line[0] == '%': // blank lines, comments and directives begin no document
		case ended:
			return i + 1
		default:
			begun = true
		}
	}

	return 1
}

const emptyFile = `the file is empty; it begins with "version: 1"`

// A slip is a line that is no YAML, or parses as something unintended.
type slip struct {
	line *regexp.Regexp // its first group is the place of the mistake
	text string         // the mistake; a verb, if there is one, stands for the text of that group
}

const lineHead = `^[ \t]*(?:- +)*`

// slips returns all slips. Their patterns are compiled when a file is the first that cannot be read.
var slips = sync.OnceValue(func() []slip {
	return []slip{
		{regexp.MustCompile(`^(<<<<<<<|=======|>>>>>>>)(?: |$)`), "this is the mark of a merge in which two versions differ: choose one of them"},
		{regexp.MustCompile(`^ *(\t)[ \t]*\S`), "a tab stands in the indentation: YAML takes spaces only"},
		{regexp.MustCompile(`^[ \t]*([\x{a0}\x{2000}-\x{200b}\x{3000}])`), "a space that is not a plain one stands in the indentation: write plain spaces"},
		{regexp.MustCompile(lineHead + `[\w.-]+(：)`), "this colon is full-width: write \": \""},
		{regexp.MustCompile(lineHead + `\{[^"'#]*?([：，｛｝])`), "this sign is full-width: write it plain, as in {name: a, limit: 40/s}"},
		{regexp.MustCompile(lineHead + `([｛［])`), "this sign is full-width: write it plain, as in {name: a, limit: 40/s}"},
		{regexp.MustCompile(lineHead + `(?:[\w.-]+: +)?(\{\{|\{%)`), "this is a template of another program, which has to be filled in first"},
		{regexp.MustCompile(`^ *([*+–—－•·]|[0-9]+[.)]) +[A-Za-z_][\w-]*:(?: |$)`), "an item of a list begins with a plain \"-\""},
		{regexp.MustCompile(lineHead + `[A-Za-z_][\w-]* *(=) *\S`), "a field and its value have a colon and a space between them: write \": \""},
		{regexp.MustCompile(`[{,]\s*[\w.-]+: +((?:[^\s"'{}\[\],][^"',{}\[\]]*\{[^{}]*\}|\{[^{}"',]*\}[^\s,{}\]#])(?:[^\s,{}]|\{[^{}]*\})*)`), "between braces a value with a brace in it needs quotes: write \"%s\""},
		{regexp.MustCompile(`^[ \t]*(-)[A-Za-z_]\w*:(?: |$)`), "a space is missing behind the \"-\" of a list"},
		{regexp.MustCompile(lineHead + `[A-Za-z_][\w-]*:([^\s/:][^:]*)$`), "a space is missing behind the colon, before %q"},
		{regexp.MustCompile(lineHead + `[\w.-]+: +(\{[^"'#]*\}[^\s,#].*|\[[^"'#]*\][^\s,#].*)$`), "in YAML a value that begins with a brace or a bracket needs quotes: write \"%s\""},
		{regexp.MustCompile(lineHead + `[\w.-]+: +(\*[^\s"]*[./{][^\s"]*)`), "in YAML a value that begins with \"*\" needs quotes: write \"%s\""},
		{regexp.MustCompile(lineHead + `[\w.-]+: +([@%` + "`" + `].*)$`), "in YAML a value that begins with this sign needs quotes: write \"%s\""},
		{regexp.MustCompile(lineHead + `[\w.-]+: +([^\s"'{\[#&*!|>][^#"]*: .*)$`), "a value with a colon and a space in it needs quotes: write \"%s\""},
	}
})

// failSlip notes the first slip in the lines that the YAML library could not read. It returns false
// if it finds none.
func (r *reader) failSlip(e *yaml.LoadError) bool {
	// The library may notice a slip only in the line behind it.
	from, to := max(e.Mark.Line-1, 1), min(e.Mark.Line, len(r.lines))

	// The library notices a missing colon even later, so begin where the key began.
	if c := e.ContextMark.Line; c > 0 && strings.Contains(e.ContextMsg, "simple key") {
		from = c
	}

	for i := from; i <= to; i++ {
		// Bound the text, because the patterns run over each line.
		line := clipTo(r.lines[i-1].text, 500)
		for _, s := range slips() {
			m := s.line.FindStringSubmatchIndex(line)
			if m == nil {
				continue
			}

			text := s.text
			if strings.Contains(text, "%") {
				text = fmt.Sprintf(text, clip(strings.TrimRight(line[m[2]:m[3]], " ")))
			}

			r.failAt(i, utf8.RuneCountInString(line[:m[2]])+1, "%s", text)
			return true
		}
	}

	return false
}

// behindQuote reports whether the character before a place, or before the spaces there, is
// a quote.
func (r *reader) behindQuote(at yaml.Mark) bool {
	if at.Line < 1 || at.Line > len(r.lines) {
		return false
	}
	line := &r.lines[at.Line-1]
	before := strings.TrimRight(line.text[:line.at(at.Column)], " ")
	return strings.HasSuffix(before, `"`) || strings.HasSuffix(before, "'")
}

// failSyntax notes an error of the YAML library in plain words, or in the library's words if no case fits. The first case
// that fits counts, so special cases stand before general cases.
func (r *reader) failSyntax(e *yaml.LoadError) {
	at := e.Mark
	text := strings.TrimPrefix(e.Message, "yaml: ")

	// unclosed sets the text for a missing bracket. The library notices it far behind its opening, so point to the
	// opening if that is in a different line.
	unclosed := func(what string) {
		if at.Line != e.ContextMark.Line {
			at = e.ContextMark
		}
		text = what
	}

	switch {
	case strings.Contains(text, "escape character") && !strings.Contains(text, "Unicode"):
		text = `"\" and this character mean nothing in a text with double quotes: write "\\", or use single quotes`
	case r.behindQuote(at):
		text = "a text in quotes ends before this place: a quote is missing above, or too many stand here"
	case strings.Contains(text, "tab character"):
		text = "a tab stands in the indentation: YAML takes spaces only"
	case strings.Contains(text, "expected node content"):
		text = "a value is expected here: a \",\" or a bracket is too many, or a value is missing"
	case strings.Contains(text, "YAML document"):
		text = "this directive is of another version of YAML: leave the line out"
	case strings.Contains(e.ContextMsg, "quoted scalar") && strings.Contains(text, "unexpected"):
		at, text = e.ContextMark, "the text that is quoted here has no end: a quote is missing"
	case strings.Contains(text, "Unicode character escape"):
		text = `this escape is no character by itself: write the character as it is, or as "\U" and eight digits`
	case strings.Contains(e.ContextMsg, "flow mapping"):
		unclosed(`a "}" is missing: a "{" must be closed, and its fields are separated by ","`)
	case strings.Contains(e.ContextMsg, "flow sequence"):
		unclosed(`a "]" is missing: a "[" must be closed, and its items are separated by ","`)
	case strings.Contains(text, "expected '-' indicator"), strings.Contains(text, "mapping values are not allowed"),
		strings.Contains(text, "did not find expected key"):
		text = "this line does not fit to the lines above: fields of one row begin in the same column, and a value stands in the line of its field"
	case strings.Contains(text, "could not find expected ':'"):
		at, text = e.ContextMark, "a field is a name, a colon, a space and a value: \"limit: 40/s\""
	case strings.Contains(text, "unknown anchor"):
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "unknown anchor '"), "'")
		text = fmt.Sprintf("there is no anchor %q above: an alias repeats what stands behind its anchor", "&"+clip(name))
	case strings.Contains(text, "expected alphabetic or numeric"):
		text = "a \"*\" or \"&\" stands before the name of an anchor, without a space; a text that begins with one needs quotes"
	case strings.Contains(text, "cannot start any token"):
		text = "no value begins with this sign: put the value into quotes"
	case strings.Contains(text, "<document start>"):
		text = "this stands behind the end of the file's value: a file is one mapping, which begins with \"version: 1\""
	case strings.Contains(text, "exceeded max depth"):
		text = fmt.Sprintf("this stands too deep; %d levels are the most", mostDepth)
	case e.ContextMsg != "":
		text = e.ContextMsg + ": " + text
	}

	r.failAt(max(at.Line, 1), max(at.Column, 1), "%s", text)
}
