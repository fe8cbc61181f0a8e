package telegram

import (
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/reqbody"
)

// mostLooked is how much of a body is looked at: a message has 4096 characters.
const mostLooked = 64 << 10

const field = "chat_id"

// chat is the default of [Options.Channel].
var chat = caller.Or(throttle.Query(field), ofBody)

func ofBody(r *http.Request) (id string) {
	var read func(io.Reader) string
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/json":
		read = ofJSON
	case "application/x-www-form-urlencoded":
		read = ofForm
	default:
		return ""
	}
	reqbody.Look(r, func(body io.Reader) { id = read(io.LimitReader(body, mostLooked)) })
	return id
}

func ofJSON(body io.Reader) (id string) {
	s := jsonscan.New(body, mostLooked)
	if s.Peek() != '{' {
		return ""
	}
	s.Object(func(member []byte) bool {
		if first := s.Peek(); string(member) != field || first == '{' || first == '[' {
			return s.Skip()
		}
		id, _ = s.Scalar()
		return false
	})
	return id
}

func ofForm(body io.Reader) string {
	text, err := io.ReadAll(body)
	if err != nil {
		return ""
	}
	values, _ := url.ParseQuery(string(text)) // as far as it can be read
	return values.Get(field)
}
