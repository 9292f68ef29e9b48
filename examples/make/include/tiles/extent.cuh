#pragma once

constexpr unsigned TILE = 64;  // rows and columns of a tile, as in the specs
