// Package sdktest runs programs that call platforms through the SDKs that people
// use for them, with throttle below, against upstreams that refuse on purpose.
//
// Each file is named after an SDK. Its function recipe… is the code that a user of that SDK
// types; docs/use/sdks.md links it, and shows the lines that matter. Its platform is the
// upstream: its counting, the forms of its refusals, its answers.
//
// All of it happens in one process and in virtual time: a real http.Server and a
// real http.Transport, with connections that lie in memory (wire_test.go). So hours
// take seconds. The rules by which an upstream judges are in upstream_test.go.
package sdktest
