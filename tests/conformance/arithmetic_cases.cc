/* Cases of arithmetic.cu. */
#include <bitset>
#include <cstdio>

#include "case.h"
#include "numbers.h"
#include "random.h"

namespace conformance {
namespace {

const uint32_t INFINITE = 0x7f800000, QUIET_NAN = 0x7fffffff, SMALLEST_NORMAL = 0x00800000;

bool is_nan(uint32_t bits) {
    return (bits & 0x7fffffff) > INFINITE;
}
bool is_subnormal(uint32_t bits) {
    return (bits & INFINITE) == 0 && (bits & 0x7fffffff) != 0;
}

uint16_t packed(uint32_t bits) {
    if (is_nan(bits))
        return 0x7fff;
    return (bits & INFINITE) == INFINITE ? (uint16_t)(bits >> 16) : bf16_nearest(float_of(bits));
}

/* Ties, neighbours of ties, both ends of every exponent, specials, and random words. */
std::vector<uint32_t> words_to_convert() {
    std::vector<uint32_t> words = {INFINITE, QUIET_NAN, 0x7f800001, 0xffc00000, 0x7fc12345, 0x7f7fffff, 0x7f7f8000};
    for (uint32_t exponent = 0; exponent < 256; exponent++)
        for (uint32_t tail : {0x000000, 0x000001, 0x007fff, 0x008000, 0x008001, 0x017fff, 0x018000, 0x018001, 0x7f7fff,
                              0x7f8000, 0x7f8001, 0x7fffff})
            words.push_back(exponent << 23 | tail);
    const size_t positive = words.size();
    for (size_t i = 0; i < positive; i++)
        words.push_back(words[i] ^ 0x80000000);
    random_source random(11);
    while (words.size() < 16384)
        words.push_back((uint32_t)random.next());
    return words;
}

void add_convert(case_list &cases) {
    const std::vector<uint32_t> words = words_to_convert();
    const size_t pairs = words.size();
    test_case c;
    c.name = "arithmetic: bf16 packed and unpacked";
    c.kernel = "arithmetic_convert";
    c.ctas = 4;
    c.number[0] = (uint32_t)pairs;
    c.after = image(pairs * 20);
    for (size_t i = 0; i < pairs; i++) {
        const uint32_t low = words[i], high = words[(i * 7 + 3) % pairs];
        append(c.in, low);
        append(c.in, high);
        c.after.put(i * 20, (uint32_t)packed(high) << 16 | packed(low));
        c.after.put(i * 20 + 4, (uint32_t)packed(low) << 16);
        c.after.put(i * 20 + 8, (uint32_t)packed(high) << 16);
        c.after.put(i * 20 + 12, low);
        c.after.put(i * 20 + 16, (uint32_t)std::bitset<32>(low).count());
    }
    cases.push_back(c);
}

/* How far a float is from the exact value, in units of the last place of the float nearest to it. */
double ulp_distance(uint32_t got, double exact) {
    int exponent;
    std::frexp(exact, &exponent);
    return std::fabs(float_of(got) - exact) / std::ldexp(1.0, exponent - 24);
}

struct sweep {
    const char *name;
    bool reciprocal;
    double ulp;
    double (*exact)(double);
};

/* In ulp; infinite when even the kind of number is wrong. */
double error_of(const sweep &s, uint32_t x, uint32_t y) {
    const double exact = s.exact(is_subnormal(x) ? std::copysign(0.0, float_of(x)) : float_of(x));
    if (std::isnan(exact))
        return is_nan(y) ? 0 : INFINITY;
    const uint32_t sign = std::signbit(exact) ? 0x80000000 : 0;
    if (std::fabs(exact) >= std::ldexp(1.0, 128))
        return y == (sign | INFINITE) ? 0 : INFINITY;
    /* Flushed; just above the smallest normal the error may have brought it under. */
    if (y == sign && std::fabs(exact) < float_of(SMALLEST_NORMAL + (uint32_t)s.ulp))
        return 0;
    return is_nan(y) || is_subnormal(y) ? INFINITY : ulp_distance(y, exact);
}

std::string judge_sweep(const sweep &s, const std::vector<uint8_t> &in, const std::vector<uint8_t> &out) {
    double worst = 0;
    size_t at = 0;
    for (size_t offset = 0; offset < in.size(); offset += 4) {
        const double error = error_of(s, read<uint32_t>(in, offset), read<uint32_t>(out, offset));
        if (error > worst) {
            worst = error;
            at = offset;
        }
    }
    if (worst <= s.ulp)
        return "";
    char text[120];
    std::snprintf(text, sizeof text, "the worst: f(%08x) = %08x is wrong by %.2f ulp, allowed %.0f",
                  read<uint32_t>(in, at), read<uint32_t>(out, at), worst, s.ulp);
    return text;
}

void add_sweep(case_list &cases, const sweep &s, const std::vector<uint32_t> &words) {
    test_case c;
    c.name = s.name;
    c.kernel = "arithmetic_approximate";
    c.ctas = 8;
    c.number[0] = (uint32_t)words.size();
    c.number[1] = s.reciprocal;
    for (uint32_t word : words)
        append(c.in, word);
    c.after = image(c.in.size());
    const std::vector<uint8_t> in = c.in;
    c.judge = [s, in](const std::vector<uint8_t> &out) { return judge_sweep(s, in, out); };
    cases.push_back(c);
}

/* Every exponent, and within it evenly spread and random mantissas; both signs; specials. */
std::vector<uint32_t> words_to_sweep(uint32_t first_exponent, uint32_t last_exponent, uint32_t per_exponent) {
    std::vector<uint32_t> words = {0,         0x80000000, INFINITE,   0x80000000 | INFINITE,
                                   QUIET_NAN, 1,          0x80000001, 0x007fffff};
    random_source random(first_exponent);
    for (uint32_t exponent = first_exponent; exponent <= last_exponent; exponent++)
        for (uint32_t i = 0; i < per_exponent; i++) {
            const uint32_t even = (uint32_t)((uint64_t)i * 0x7fffff / (per_exponent - 1));
            words.push_back(exponent << 23 | even);
            words.push_back(0x80000000 | exponent << 23 | ((uint32_t)random.next() & 0x7fffff));
        }
    return words;
}

} // namespace

void add_arithmetic_cases(case_list &cases) {
    add_convert(cases);
    add_sweep(cases, {"arithmetic: exp2_approx within 2 ulp, all magnitudes", false, 2, std::exp2},
              words_to_sweep(1, 254, 40));
    add_sweep(cases, {"arithmetic: exp2_approx within 2 ulp, arguments from 1/16 to 256", false, 2, std::exp2},
              words_to_sweep(123, 134, 1000));
    add_sweep(cases, {"arithmetic: reciprocal_approx within 1 ulp", true, 1, [](double x) { return 1 / x; }},
              words_to_sweep(1, 254, 60));
}

} // namespace conformance
