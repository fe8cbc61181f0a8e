package waitapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/internal/problem"
)

// A body has at most mostBody bytes, which come within bodyTime. At most mostBodies come at once, so
// that slow callers cannot fill the memory.
const (
	mostBody   = 64 << 10
	bodyTime   = 10 * time.Second
	mostBodies = 1024
)

// bodies has an element for each body that is read.
type bodies chan struct{}

// read returns the whole body of a request. It is read before the caller waits, because
// net/http notices only then that a caller leaves (golang/go#23262). Other types than JSON are refused:
// a browser sends those for pages of any origin without asking.
func (b bodies) read(w http.ResponseWriter, r *http.Request) ([]byte, *problem.Problem) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, problem.New(http.StatusUnsupportedMediaType, "the Content-Type is not application/json")
	}

	select {
	case b <- struct{}{}:
		defer func() { <-b }()
	default:
		return nil, refuse("too many bodies are on their way to this process")
	}

	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTime)) // where it is not supported the caller's context has to do

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err == nil {
		_ = deadline.SetReadDeadline(time.Time{}) // else it stays: net/http reads what is left of a body before it answers
	}

	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, problem.New(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", mostBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.New(http.StatusRequestTimeout, "the body of the request came too slowly")
	case err != nil:
		return nil, problem.New(http.StatusBadRequest, "the body of the request could not be read")
	}

	return body, nil
}

// A reader reads a body, and notes all mistakes in it.
type reader struct {
	mistakes []problem.Mistake
}

// A field reads one value, which is at a place.
type field func(raw json.RawMessage, at string)

// read reads a body that is one object with these fields.
func (d *reader) read(body []byte, fields map[string]field, required ...string) {
	if err := json.Unmarshal(body, new(json.RawMessage)); err != nil || !utf8.Valid(body) {
		d.mistake("#", "is not one JSON value in UTF-8")
		return
	}
	d.object(body, "#", fields, required...)
}

// problem returns what is wrong with the body; nil: nothing is.
func (d *reader) problem() *problem.Problem {
	if len(d.mistakes) == 0 {
		return nil
	}
	text := d.mistakes[0].Pointer + " " + d.mistakes[0].Detail
	if more := len(d.mistakes) - 1; more > 0 {
		text += fmt.Sprintf(", and errors has %d more", more)
	}
	p := problem.New(http.StatusBadRequest, "the body has a mistake: "+text)
	p.Errors = d.mistakes
	return p
}

func (d *reader) mistake(at, detail string) {
	d.mistakes = append(d.mistakes, problem.Mistake{Pointer: at, Detail: detail})
}

// object reads an object that has these fields and no others, each once.
func (d *reader) object(raw json.RawMessage, at string, fields map[string]field, required ...string) {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	if begin, _ := tokens.Token(); begin != json.Delim('{') {
		d.mistake(at, "is not an object")
		return
	}

	seen := make(map[string]bool)
	for tokens.More() {
		token, _ := tokens.Token()
		name := token.(string)
		var value json.RawMessage
		_ = tokens.Decode(&value) // raw is valid

		place := at + "/" + pointerPart(name)
		switch read := fields[name]; {
		case read == nil:
			d.mistake(place, "is not known")
		case seen[name]:
			d.mistake(place, "is there twice")
		case string(value) == "null":
			d.mistake(place, "is null: leave it out")
		default:
			read(value, place)
		}

		seen[name] = true
	}

	for _, name := range required {
		if !seen[name] {
			d.mistake(at+"/"+name, "is missing")
		}
	}
}

// pointerPart returns a name as a JSON pointer in a fragment has it.
func pointerPart(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

// list returns a field that is a list of 1 to most elements.
func (d *reader) list(most int, element field) field {
	return func(raw json.RawMessage, at string) {
		var all []json.RawMessage
		switch err := json.Unmarshal(raw, &all); {
		case err != nil:
			d.mistake(at, "is not a list")
		case len(all) == 0 || len(all) > most:
			d.mistake(at, fmt.Sprintf("has %d elements: use 1 to %d", len(all), most))
		default:
			for i, one := range all {
				element(one, fmt.Sprintf("%s/%d", at, i))
			}
		}
	}
}

func (d *reader) text(to *string) field {
	return func(raw json.RawMessage, at string) {
		if json.Unmarshal(raw, to) != nil {
			d.mistake(at, "is not a string")
		}
	}
}

// word returns a field that is a string which is good, or else has that mistake.
func (d *reader) word(to *string, isGood func(string) bool, mistake string) field {
	return func(raw json.RawMessage, at string) {
		var s string
		if json.Unmarshal(raw, &s) != nil || !isGood(s) {
			d.mistake(at, mistake)
			return
		}
		*to = s
	}
}

func (d *reader) truth(to *bool) field {
	return func(raw json.RawMessage, at string) {
		if json.Unmarshal(raw, to) != nil {
			d.mistake(at, "is not true or false")
		}
	}
}

// number returns a field that is an integer of at least so much.
func (d *reader) number(to *int, least int) field {
	return func(raw json.RawMessage, at string) {
		var n int32
		if json.Unmarshal(raw, &n) != nil || int(n) < least {
			d.mistake(at, fmt.Sprintf("is not an integer of %d or more", least))
		}
		*to = int(n)
	}
}

// seconds returns a field that is a number of seconds, from least to most.
func (d *reader) seconds(to *time.Duration, least, most time.Duration) field {
	return func(raw json.RawMessage, at string) {
		var s float64
		if json.Unmarshal(raw, &s) != nil || s < least.Seconds() || s > most.Seconds() {
			d.mistake(at, fmt.Sprintf("is not a number of seconds from %v to %v", least.Seconds(), most.Seconds()))
			return
		}
		*to = time.Duration(s * float64(time.Second))
	}
}
