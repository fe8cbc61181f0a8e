# Each target covers every module of the repository.

EACH = scripts/each-module.sh

# How long each fuzz target runs.
FUZZTIME ?= 30s
export FUZZTIME

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: check
check: lint test test-without-race sdks site examples bench fuzz ## test, test-without-race, sdks, lint, site, examples, bench and fuzz

.PHONY: setup
setup: redis postgres pgbouncer mariadb prometheus lua clients browser ## install servers, clients, a browser, modules and programs that check
	@$(EACH) go mod download
	@cd internal/tools && go mod download

.PHONY: redis
redis: ## install redis-server unless it is there
	@scripts/install-redis.sh

.PHONY: postgres
postgres: ## install PostgreSQL's server unless it is there
	@scripts/install-postgres.sh

.PHONY: pgbouncer
pgbouncer: ## install PgBouncer, for make soak, unless it is there
	@scripts/install-pgbouncer.sh

.PHONY: mariadb
mariadb: ## install MariaDB's server unless it is there
	@scripts/install-mariadb.sh

.PHONY: prometheus
prometheus: ## install prometheus, for make soak, unless it is there
	@scripts/install-prometheus.sh

.PHONY: lua
lua: ## install lua5.4, as Dragonfly has it, unless it is there
	@scripts/install-lua.sh

# Modules that compile much code of other people; make sdks has their tests.
FOREIGN = ./adapters/asynqthrottle ./internal/lab/benchmarks ./servers/dashboard/browsertest ./adapters/promthrottle/promql ./adapters/riverthrottle ./internal/lab/manifests ./internal/lab/sdktest ./adapters/temporalthrottle

.PHONY: test
test: redis postgres mariadb ## the tests, with the race detector and in random order; test-without-race, sdks and soak have the rest
	@# They wait for servers and fleets for much of the time, so both run side by side.
	@$(MAKE) --jobs 2 --keep-going --no-print-directory test-root test-modules

# make lint vets. Most tests of redisstore await a server of their own, so more of them than there are cores run
# side by side. The detector would have each package sleep for a second when it is done. With -race in GOFLAGS,
# what tests have go vet look at is not compiled once more without it. The compiler collects garbage seldom,
# which makes it a fifth cheaper and takes 100 MB more; the tests collect it as ever. It writes nothing for a debugger,
# which makes it a fifth cheaper again; lines of panics and of races do not need that.
SHORT = env GOGC=400 go test -exec "env -u GOGC" -vet=off -short -shuffle=on -count=1 -parallel 4 -timeout 15m
RACE = GORACE=atexit_sleep_ms=100 GOFLAGS="$$GOFLAGS -race -gcflags=all=-dwarf=false"

.PHONY: test-root test-modules test-without-race
test-root: # redisstore takes longest, so it begins. Many packages wait for servers of their own: more of them than there are cores run side by side
	@$(RACE) $(SHORT) -p 3 ./redisstore ./...

test-modules:
	@$(RACE) BUT=". $(FOREIGN)" $(EACH) $(SHORT) ./...

.PHONY: test-without-race
test-without-race: redis lua ## arithmetic in many cases, allocations, lists: the tests that call soak.WithoutRace, without the race detector
	@$(SHORT) -run "$$(scripts/without-race.sh tests)" $$(scripts/without-race.sh packages)
	@tests=$$(scripts/without-race.sh tests) && for module in $$(scripts/without-race.sh modules); do \
		(cd $$module && $(SHORT) -run "$$tests" ./...) || exit; \
	done

.PHONY: sdks
sdks: redis postgres clients browser ## throttle beside other libraries, in job queues, inside other people's SDKs and before clients of other languages, its page in a browser, its alert rules read by Prometheus' parser, and its manifests by Kubernetes' types
	@# Clients of other languages wait for most of the time: more of them than there are cores side by side.
	@for module in $(FOREIGN); do \
		(cd $$module && $(RACE) go test -vet=off -short -shuffle=on -count=1 -parallel 8 -timeout 15m ./...) || exit; \
	done

.PHONY: clients
clients: ## install the HTTP clients of other languages that make sdks puts behind the proxy, unless they are there
	@scripts/install-clients.sh

.PHONY: browser
browser: ## install the browser in which make sdks looks at the dashboard, unless it is there
	@scripts/install-chromium.sh

.PHONY: pictures
pictures: redis browser ## make the pictures of the dashboard anew
	cd servers/dashboard/browsertest && go test -count=1 -run TestPictures . -pictures ../../../docs/pictures

.PHONY: site
site: browser ## build the site from the Markdown of the repository, and look at it in a browser
	@scripts/site.sh

.PHONY: cost
cost: redis ## what make test costs, with an empty build cache and with a warm one
	@scripts/cost.sh $(MAKE) test

# How many times as many random cases make soak plays. 1 is for an hour, more for a night.
SOAK ?= 1
export SOAK

.PHONY: soak
soak: redis postgres pgbouncer mariadb prometheus lua ## what is long or measured: the tests that are longer than in make test, the tables of waits and scale, chaos
	@# One package at a time: fleets are measured, and must have the machine to themselves.
	@# Tests of redisstore await servers of their own, so four run side by side.
	@folders=$$(go run ./internal/lab/soak/longforms) && echo "$$folders" | { status=0; while read -r folder tests; do \
		(cd "$$folder" && go test -vet=off -race -shuffle=on -count=1 -parallel 4 -timeout $$((20 * $(SOAK)))m -run "$$tests" . </dev/null) || status=1; \
	done; exit $$status; }
	@# Nothing is measured here, so both cores have a package. The next line has the waits.
	go test -vet=off -shuffle=on -count=1 -p 2 -timeout $$((20 * $(SOAK)))m -run "$$(scripts/without-race.sh tests)" -skip '^TestWaits$$' $$(scripts/without-race.sh packages)
	go test -count=1 -timeout 20m ./internal/lab/waits -v -long
	go run ./internal/lab/scale -measure -fleets 2
	$(MAKE) chaos

.PHONY: chaos
chaos: redis ## break Redis, networks and members under a fleet; CHAOS=-long breaks all that can be
	go run ./internal/lab/chaos $(CHAOS)

.PHONY: servers
servers: ## the tests of redisstore with each Redis and Valkey that Debian packages; names them in docs/run/redis.md
	@scripts/servers.sh

.PHONY: lint
lint: ## gofmt, spelling, comments, workflows, go vet, staticcheck
	@files=$$(gofmt -l .) && [ -z "$$files" ] || { echo "not as gofmt has it: $$files"; exit 1; }
	@# Chinese pages have few words that it knows, and testdata has text of others.
	@misspell=$$(go tool -modfile=internal/tools/go.mod -n misspell) && \
		files=$$(git ls-files '*.go' '*.lua' '*.md' ':!docs/zh' ':!README.zh-CN.md' ':!*testdata/*') && [ -n "$$files" ] && \
		echo "$$files" | xargs "$$misspell" -error
	@go run ./internal/lab/prose
	@# The programs that it would call for scripts may be there or not.
	@go tool -modfile=internal/tools/go.mod actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
	@$(EACH) go vet ./...
	@# Its path, because each module is looked at in its own folder.
	@staticcheck=$$(go tool -modfile=internal/tools/go.mod -n staticcheck) && \
		$(EACH) "$$staticcheck" ./...

# The library and the command, which people build for other systems.
.PHONY: cross
cross: ## go vet, tests included, for Windows, macOS and 32 bit
	@# Some SDKs of others do not compile for 32 bit.
	@for system in "GOOS=windows" "GOOS=darwin" "GOOS=linux GOARCH=386"; do \
		case $$system in *386) but=./internal/lab/sdktest ;; *) but= ;; esac; \
		env BUT="$$but" CGO_ENABLED=0 $$system scripts/each-module.sh go vet ./... || exit; \
	done

# What needs no server; without the race detector, which has no 32 bits.
.PHONY: test-386
test-386: ## the tests of the root module that need no server, where an int has 32 bits
	@CGO_ENABLED=0 GOARCH=386 scripts/without-redis.sh --here

.PHONY: api
api: ## fail if the last release's users cannot compile any more and the changelog does not say so, or a module with the versions that it requires
	@scripts/api.sh
	@scripts/required.sh

.PHONY: release
release: ## prepare the tags of VERSION in a clone, and try them from an empty folder through a proxy
	@scripts/release.sh $(VERSION)

.PHONY: tidy
tidy: ## fail if go.mod or go.sum is not tidy
	@$(EACH) "$(CURDIR)/scripts/tidy.sh"

.PHONY: examples
examples: redis ## run the examples, one of them in processes that share a Redis
	go run ./examples/dingtalk
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && go run ./examples/batch -out "$$out"
	scripts/with-redis.sh sh -c 'go run ./examples/dingtalk -processes 3 -redis "$$REDIS_URL"'

.PHONY: bench
bench: redis postgres mariadb ## each benchmark once, so that none rots
	@# The tests in a browser have no benchmarks, and need one even so.
	@BUT=./servers/dashboard/browsertest $(EACH) go test -run '^$$' -bench . -benchtime 1x ./...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	@$(EACH) "$(CURDIR)/scripts/fuzz.sh"

.PHONY: twins
twins: ## note that the Chinese page PAGE has the facts of the English ones: compare them first
	@[ -n "$(PAGE)" ] || { echo "twins: say which page you have compared: make twins PAGE=docs/zh/run/stores.md"; exit 1; }
	go test -count=1 -run '^TestChinesePagesFollow$$' . -update-twins $(PAGE)

.PHONY: mutants
mutants: redis postgres pgbouncer mariadb prometheus lua ## break each promise in many ways: the tests must notice; SHARD=1/6 breaks a sixth of them
	go run ./internal/lab/mutants -p 2 -shard $(or $(SHARD),1/1)

.PHONY: deps
deps: ## fail if a dependency is not what go.sum says
	@# What was never downloaded verifies as well, so it is downloaded first.
	@$(EACH) sh -c 'go mod download && go mod verify'
	@cd internal/tools && go mod download && go mod verify

.PHONY: vuln
vuln: ## look for known vulnerabilities; asks vuln.go.dev, or what GOVULNDB names
	@# Without an answer it fails: what was not looked at must not pass for sound.
	@vulns=$$(go tool -modfile=internal/tools/go.mod -n govulncheck) && \
		$(EACH) "$$vulns" $${GOVULNDB:+-db "$$GOVULNDB"} -test ./...

.PHONY: newest
newest: redis ## the tests with the newest dependencies; changes go.mod
	@$(EACH) go get -u -t ./...
	@$(MAKE) test
