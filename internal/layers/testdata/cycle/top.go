package cycle

type thing struct{ field int }

func high() thing { Low(); return thing{} }
