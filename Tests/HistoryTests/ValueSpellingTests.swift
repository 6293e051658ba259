import History
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct ValueSpellingTests {
    @Test(
        arguments: [
            ("5", 20, nil), ("-5", 23, nil), ("5.0", 23, "a whole number"), ("", 23, "a whole number"),
            (" 5", 20, "a whole number"),
            ("5.0", 1700, nil), ("NaN", 1700, nil), ("1e9", 701, nil), ("five", 1700, "a number"),
            ("1 2", 701, "a number"),
            ("7F3C2B1E-0c5d-4f6e-8a52-000000000001", 2950, nil), ("{7f3c2b1e0c5d4f6e8a52000000000001}", 2950, nil),
            ("7f3c2b1e", 2950, "a uuid"), ("yes", 16, nil), ("maybe", 16, "true or false"), ("anything", 25, nil),
            ("anything", 99_999, nil),
        ] as [(String, UInt32, String?)])
    func `what cannot be a value of a type is told from what may be`(text: String, type: UInt32, expected: String?) {
        #expect(ValueSpelling.expected(text, type: type) == expected)
    }
}
