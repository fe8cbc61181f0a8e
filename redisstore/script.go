package redisstore

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/row.lua
var rowLua string

//go:embed lua/kinds.lua
var kindsLua string

//go:embed lua/book.lua
var bookLua string

//go:embed lua/pause.lua
var pauseLua string

//go:embed lua/status.lua
var statusLua string

// Every script is the rows, the kinds and one of the three things to do.
var (
	scriptBook   = script(bookLua)
	scriptPause  = script(pauseLua)
	scriptStatus = script(statusLua)
)

func script(main string) *redis.Script {
	return redis.NewScript(rowLua + kindsLua + main)
}
