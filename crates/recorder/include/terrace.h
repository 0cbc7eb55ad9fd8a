/* The header of markers under the name that it had before libterrace.so came. New programs include <terrace/marker.h>. */
#include "terrace/marker.h"
