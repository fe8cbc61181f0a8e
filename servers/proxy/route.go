package proxy

import (
	"net/http"
	"net/url"
)

// A route is where a request goes, and how its caller reaches hosts.
type route struct {
	target *url.URL
	field  string // the Host field with which the request is sent

	here string // how the caller writes the origin of the target: "http://127.0.0.1:7070/api.example.com"
	root string // what the caller puts before a path: "/api.example.com"

	// others is what the caller puts before another host: "http://localhost:7070/", which clients take for another
	// origin than here, so that they send no credential there. It is empty if there is no such origin.
	others string

	byProxy bool // the caller writes "http://" before a host, and sends that to the proxy

	instead http.Handler // serves the request, which has no target; nil: it is sent on
}
