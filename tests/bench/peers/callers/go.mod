module sagad.dev/bench/peers/callers

go 1.26.0
