import Bytes
import Change
import History

/// Replacement for a masked value, which PostgreSQL accepts for the column's type. It is made from the mark: the tag
/// that the masking put in place of the value. For text types it is the mark itself. Equal values have equal stand-ins
/// within one masking, so that rows still refer to each other. A stand-in reveals no more about a value than its mark.
public enum StandIn {
    /// Description of the stand-ins for users of the program.
    public static let description = """
        texts get the mark (*** and 16 digits, cut to the column's length); uuid, numbers, dates and times, boolean, bytea, \
        json and jsonb, addresses of networks, bits and enumerations a value made of the mark; arrays one element of that; \
        ranges are empty
        """

    /// Returns the stand-in for a mark, as text that PostgreSQL accepts for the type; nil if the program has no valid
    /// values of the type.
    public static func text(of tag: UInt64, for type: TargetType) -> String? {
        switch type {
        case .builtIn(let oid, let modifier): builtIn(tag, oid, modifier)
        case .array(let element): text(of: tag, for: element).map { "{\(quoted($0))}" }
        case .enumeration(let labels): labels.isEmpty ? nil : labels[Int(tag % UInt64(labels.count))]
        case .named(let name, _): named(tag, name)
        }
    }

    private static func quoted(_ element: String) -> String {
        "\"" + element.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : String($0) }.joined() + "\""
    }

    /// Returns the mark as a word without special characters, for types whose text has a syntax, such as `tsvector`.
    private static func word(_ tag: UInt64) -> String { "masked" + Hex.text(tag) }

    private static func named(_ tag: UInt64, _ name: String) -> String? {
        switch name {
        case "citext": MaskMark.text(tag)
        case "hstore": "\"\(MaskMark.sign)\"=>\"\(Hex.text(tag))\""
        case "ltree", "lquery": word(tag)
        default: nil
        }
    }

    private static func builtIn(_ tag: UInt64, _ oid: UInt32, _ modifier: Int32) -> String? {
        switch oid {
        case 16: tag & 1 == 1 ? "t" : "f"
        case 20, 21, 23, 26, 28, 700, 701, 790, 1700: number(tag, oid, modifier)
        case 19, 25: MaskMark.text(tag)
        case 18: String(Hex.text(tag).suffix(1))
        case 1042, 1043: cut(tag, modifier)
        case 17: "\\x" + Hex.text(tag)
        case 114, 3802: "\"\(MaskMark.text(tag))\""
        case 142: "<masked>\(Hex.text(tag))</masked>"
        case 3614, 3615: word(tag)
        case 1560, 1562: bits(tag, oid, modifier)
        case 1082, 1083, 1114, 1184, 1186, 1266: moment(tag, oid)
        case 650, 829, 869, 774, 2950, 3220: address(tag, oid)
        case 3904, 3906, 3908, 3910, 3912, 3926: "empty"
        case 4451, 4532, 4533, 4534, 4535, 4536: "{}"
        case 600: "(\(tag & 0xffff),\(tag >> 16 & 0xffff))"
        default: nil
        }
    }

    private static func number(_ tag: UInt64, _ oid: UInt32, _ modifier: Int32) -> String {
        switch oid {
        case 20: String(tag >> 1)
        case 21: String(tag % (1 << 15))
        case 23, 26, 28: String(tag % (1 << 31))
        case 1700 where modifier >= 4:
            // As in PostgreSQL's numeric_in: the precision is in the upper half, the scale is in eleven bits with a
            // sign.
            String(tag % powerOfTen(Int((modifier - 4) >> 16) - scale(modifier)))
        default: String(tag % 1_000_000)
        }
    }

    /// Returns the number of decimal places in the type modifier of a `numeric` column.
    private static func scale(_ modifier: Int32) -> Int { max(0, Int((((modifier - 4) & 0x7ff) ^ 1024) - 1024)) }

    private static func powerOfTen(_ exponent: Int) -> UInt64 {
        (0..<min(15, max(0, exponent))).reduce(1) { power, _ in power * 10 }
    }

    /// Returns the mark as text. If the mark is longer than the column allows, returns as many of its digits as fit.
    private static func cut(_ tag: UInt64, _ modifier: Int32) -> String {
        let mark = MaskMark.text(tag)
        guard modifier > 4, Int(modifier) - 4 < mark.count else { return mark }
        return String(Hex.text(tag).suffix(Int(modifier) - 4))
    }

    private static func bits(_ tag: UInt64, _ oid: UInt32, _ modifier: Int32) -> String {
        let most = modifier > 0 ? Int(modifier) : oid == 1560 ? 1 : 64
        let count = oid == 1560 ? most : min(most, 64)
        return String((0..<count).map { tag >> UInt64($0 % 64) & 1 == 1 ? "1" : "0" })
    }

    /// Returns a date, time or interval that is made from the mark and lies within the fifty years after 1970.
    private static func moment(_ tag: UInt64, _ oid: UInt32) -> String {
        let seconds = tag % (50 * 365 * 86_400)
        let text = TimeText.write(Int64(seconds) * 1_000_000, separator: " ")
        switch oid {
        case 1082: return String(text.prefix(10))
        case 1083: return String(text.dropFirst(11))
        case 1266: return String(text.dropFirst(11)) + "+00"
        case 1184: return text + "+00"
        case 1186: return "\(seconds) seconds"
        default: return text
        }
    }

    private static func address(_ tag: UInt64, _ oid: UInt32) -> String {
        let digits = Hex.text(tag)
        switch oid {
        case 650, 869: return "10.\(tag & 0xff).\(tag >> 8 & 0xff).\(tag >> 16 & 0xff)"
        case 829: return "02:" + pairs(digits.suffix(10))
        case 774: return "02:" + pairs(digits.suffix(14))
        case 3220: return LSN(tag).description
        default:
            // Derives another 64 bits from the mark, and sets version and variant of a random UUID.
            let more = Hex.text(tag &* 0x9e37_79b9_7f4a_7c15 ^ tag >> 29)
            return "\(digits.prefix(8))-\(digits.dropFirst(8).prefix(4))-4\(digits.suffix(3))"
                + "-a\(more.prefix(3))-\(more.suffix(12))"
        }
    }

    /// Returns hexadecimal digits in pairs with colons between them, as in a MAC address.
    private static func pairs(_ digits: Substring) -> String {
        var rest = digits
        var pairs: [Substring] = []
        while !rest.isEmpty {
            pairs.append(rest.prefix(2))
            rest = rest.dropFirst(2)
        }
        return pairs.joined(separator: ":")
    }
}
