// Package proxyclients puts "throttle proxy" before the HTTP clients of other languages: real
// programs, which know nothing of throttle but a base URL, and real processes of the proxy, which
// share Redis.
//
// The programs are in the folders of their languages. Each plays the same stories, which
// stories_test.go judges. clients_test.go has the differences between clients, and the
// table of docs/use/other-languages.md must say the same. scripts/install-clients.sh installs the clients.
package proxyclients
