// Fills and empties a map of strings, many times: a C++ program with typical allocations.
//
// usage: maps ROUNDS

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
    unsigned long state = 1, longest = 0;
    for (int round = 0; round < rounds; round++) {
        std::map<std::string, std::vector<int>> places;
        for (int place = 0; place < 20000; place++) {
            state = state * 6364136223846793005ul + 1;
            places["a word with number " + std::to_string((state >> 33) % 3000)].push_back(place);
        }
        for (const auto &entry : places)
            longest = std::max<unsigned long>(longest, entry.second.size());
    }
    std::printf("%lu\n", longest);
}
