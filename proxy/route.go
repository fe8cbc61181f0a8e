package proxy

import "net/url"

// A route is where a request goes, and how its caller reaches hosts.
type route struct {
	target *url.URL
	field  string // the Host field with which the request is sent

	here     string // how the caller writes the origin of the target: "http://127.0.0.1:7070/api.example.com"
	anywhere string // what the caller puts before each host: "http://127.0.0.1:7070/"; "": it reaches no host but the target
	root     string // what the caller puts before a path: "/api.example.com"

	tunnel bool // the request is a CONNECT, and has no target
}
