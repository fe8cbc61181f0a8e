package redisstore

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// What every script begins with, in this order.
var (
	//go:embed lua/row.lua
	rowLua string
	//go:embed lua/rule.lua
	ruleLua string
	//go:embed lua/search.lua
	searchLua string
	//go:embed lua/place.lua
	placeLua string
)

// What each does with it.
var (
	//go:embed lua/book.lua
	bookLua string
	//go:embed lua/pause.lua
	pauseLua string
	//go:embed lua/status.lua
	statusLua string
)

var (
	scriptBook   = script(bookLua)
	scriptPause  = script(pauseLua)
	scriptStatus = script(statusLua)
)

func script(main string) *redis.Script {
	return redis.NewScript(rowLua + ruleLua + searchLua + placeLua + main)
}
