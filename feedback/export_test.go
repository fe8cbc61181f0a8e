package feedback

// The parser of Structured Fields, for its tests.
var (
	ParseList       = parseList
	ParseDictionary = parseDictionary
)

type (
	Item    = item
	Token   = token
	Display = display
)

// NewItem makes an item; an Item's fields have no exported names.
func NewItem(value any, params map[string]any) Item { return item{value, params} }

func Value(i Item) any { return i.value }

func Params(i Item) map[string]any { return i.params }
