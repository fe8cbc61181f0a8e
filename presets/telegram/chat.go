package telegram

import (
	"mime"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/reqbody"
)

const field = "chat_id"

// chat is the default of [Options.Channel].
var chat = caller.Or(throttle.Query(field), ofBody)

func ofBody(r *http.Request) (id string) {
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/json":
		return reqbody.Member(r, field)
	case "application/x-www-form-urlencoded":
		return reqbody.Form(r).Get(field)
	}
	return ""
}
