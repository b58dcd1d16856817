#include <lauxlib.h>
#include <lualib.h>
int main(int argc, char **argv)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    lua_newtable(L);
    lua_pushstring(L, argv[2]);
    lua_rawseti(L, -2, 1);
    lua_setglobal(L, "arg");
    return luaL_dofile(L, argv[1]);
}
