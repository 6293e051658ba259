/// UUIDs for tests, each made from a number.
public enum SampleUUID {
    public static func text(_ number: Int) -> String {
        let digits = String(number, radix: 16)
        return "00000000-0000-4000-8000-" + String(repeating: "0", count: 12 - digits.count) + digits
    }
}
