module roman

go 1.21
