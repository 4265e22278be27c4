"""Why a boot failed: control boots on the same weights with one thing changed each, until one of them decides."""
