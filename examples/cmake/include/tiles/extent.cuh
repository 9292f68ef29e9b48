#pragma once

constexpr unsigned TILE = 1024;  // elements of a tile, as in the specs
