// Scale says what large fleets cost, and prints it as tables: docs/internals/scale.md has them.
//
//	go run ./internal/lab/scale            # simulated: minutes
//	go run ./internal/lab/scale -measure   # compared with processes, on a quiet machine
//	go run ./internal/lab/scale -far       # the used share of a limit where Redis is far away
//	go run ./internal/lab/scale -room      # how long a start waits that has room; sixty pods, four providers
//	go run ./internal/lab/scale -waiting   # what waiting costs Redis, in real time, on a quiet machine
//
// A simulated fleet is the real engine in virtual time: nodes are real stores with real
// clients, and a real server runs the real scripts. Only clock and wires are not real: see
// server.go. What is counted does not depend on the machine. What a call costs the server's
// processor does: see costs.go. Loads of upstreams are added up for each shard of a cluster:
// see spread.go.
package main
