package policyfile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// What people write that is no YAML. The YAML library reports where it could not go on,
// which is often a line later, in words of its grammar. Here the slip itself is looked for.

// failYAML notes an error of the YAML library.
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
	case !r.failSlip(e):
		r.failToken(e)
	}
}

// secondDocument returns the line in which a second document begins.
func (r *reader) secondDocument() int {
	begun, ended := false, false // the first document has a line, or is over
	for i := range r.lines {
		switch line := r.lines[i].text; {
		case strings.HasPrefix(line, "---") && begun:
			return i + 1
		case strings.HasPrefix(line, "..."):
			ended = true
		case line == "" || line[0] == '#' || line[0] == '%':
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
	line *regexp.Regexp // its first group is the place
	text string         // with "%s" for each group's match, in order
}

const lineHead = `^[ \t]*(?:- +)*`

var slips = []slip{
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

// failSlip looks for a slip in the lines that the YAML library could not read, and notes
// the first.
func (r *reader) failSlip(e *yaml.LoadError) bool {
	// The library notices a missing colon only later. Begin where the key began.
	from, to := max(e.Mark.Line-1, 1), min(e.Mark.Line, len(r.lines))
	if c := e.ContextMark.Line; c > 0 && strings.Contains(e.ContextMsg, "simple key") {
		from = c
	}

	for i := from; i <= to; i++ {
		// Bound the text, because the patterns run over each line.
		line := clipTo(r.lines[i-1].text, 500)
		for _, s := range slips {
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

// failToken describes an error of the YAML library in plain words.
func (r *reader) failToken(e *yaml.LoadError) {
	at := e.Mark
	text := strings.TrimPrefix(e.Message, "yaml: ")
	opened := func(what string) {
		// A missing bracket is noticed far behind its opening, so point to the opening.
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
		opened(`a "}" is missing: a "{" must be closed, and its fields are separated by ","`)
	case strings.Contains(e.ContextMsg, "flow sequence"):
		opened(`a "]" is missing: a "[" must be closed, and its items are separated by ","`)
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
