import Bytes

/// Evaluation of terms over texts, in PostgreSQL's order. The hub uses it for terms that a predicate's tests cannot
/// express, and for terms without columns.
enum TermEvaluation {
    static func truth(_ term: Term, _ row: borrowing RowImage, maximumWork: Int) -> Truth {
        switch term {
        case .all(let parts): group(parts, row, maximumWork, decides: .no)
        case .any(let parts): group(parts, row, maximumWork, decides: .yes)
        case .not(let part): truth(part, row, maximumWork: maximumWork).negated
        case .isNull(let part): isNull(part, row, maximumWork)
        case .isTrue(let part): isExactly(part, .yes, row, maximumWork)
        case .isFalse(let part): isExactly(part, .no, row, maximumWork)
        case .isDistinct(let function, let left, let right): isDistinct(function, left, right, row, maximumWork)
        case .anyElement(let function, let value, let array):
            elements(function, value, array, row, maximumWork, decides: .yes)
        case .allElements(let function, let value, let array):
            elements(function, value, array, row, maximumWork, decides: .no)
        case .member, .undecided: .ask
        default: value(term, row, maximumWork: maximumWork).truth
        }
    }

    static func value(_ term: Term, _ row: borrowing RowImage, maximumWork: Int) -> Outcome {
        switch term {
        case .constant(let text, _): text.map { .value($0) } ?? .null
        case .column(let slot, _): column(slot, row)
        case .apply(let function, let arguments): apply(function, arguments, row, maximumWork)
        case .choice(let branches, let otherwise): choice(branches, otherwise, row, maximumWork)
        case .coalesce(let parts): coalesce(parts, row, maximumWork)
        case .nullIf(let function, let left, let right): nullIf(function, left, right, row, maximumWork)
        case .array(let elements, _): array(elements, row, maximumWork)
        case .element(let array, let index): element(array, index, row, maximumWork)
        case .claims, .role, .ofClaims: .cannot
        default: Outcome(truth(term, row, maximumWork: maximumWork))
        }
    }

    // MARK: Truths

    private static func group(
        _ parts: [Term], _ row: borrowing RowImage, _ maximumWork: Int, decides: Truth
    ) -> Truth {
        assert(decides == .no || decides == .yes, "AND or OR")
        var result = decides.negated
        for part in parts {
            let verdict = truth(part, row, maximumWork: maximumWork)
            if verdict == decides { return decides }
            if verdict != result { result = result.joined(verdict, inGroupThat: decides) }
        }
        return result
    }

    private static func isNull(_ part: Term, _ row: borrowing RowImage, _ maximumWork: Int) -> Truth {
        switch value(part, row, maximumWork: maximumWork) {
        case .null: .yes
        case .value: .no
        case .failed: .failed
        case .cannot: .ask
        }
    }

    private static func isExactly(
        _ part: Term, _ wanted: Truth, _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Truth {
        truth(part, row, maximumWork: maximumWork).isExactly(wanted)
    }

    private static func isDistinct(
        _ function: Function, _ left: Term, _ right: Term, _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Truth {
        let a = value(left, row, maximumWork: maximumWork)
        let b = value(right, row, maximumWork: maximumWork)
        if a == .cannot || b == .cannot { return .ask }
        if a == .failed || b == .failed { return .failed }
        if a == .null || b == .null { return a == b ? .no : .yes }
        return applied(function, [a, b], row, maximumWork).truth.negated
    }

    /// Evaluates `value operator ANY (array)` or `value operator ALL (array)`.
    private static func elements(
        _ function: Function, _ value: Term, _ array: Term, _ row: borrowing RowImage, _ maximumWork: Int,
        decides: Truth
    ) -> Truth {
        let left = self.value(value, row, maximumWork: maximumWork)
        let right = self.value(array, row, maximumWork: maximumWork)
        if left == .cannot || right == .cannot { return .ask }
        if left == .failed || right == .failed { return .failed }
        guard case .value(let text) = right else { return .unknown }
        guard let elements = ArrayText.elements(text) else { return .ask }
        guard elements.count <= maximumWork else { return .ask }
        var result = decides.negated
        for element in elements {
            let verdict = applied(function, [left, element.map { .value($0) } ?? .null], row, maximumWork).truth
            if verdict == decides { return decides }
            if verdict != result { result = result.joined(verdict, inGroupThat: decides) }
        }
        return result
    }

    // MARK: Values

    private static func column(_ slot: Int, _ row: borrowing RowImage) -> Outcome {
        switch row.kind(slot) {
        case .absent: .cannot
        case .null: .null
        case .text: .value(row.text(slot).copied())
        }
    }

    private static func apply(
        _ function: Function, _ arguments: [Term], _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Outcome {
        if let shortcut = field(function, arguments, row, maximumWork) { return shortcut }
        var values: [Outcome] = []
        values.reserveCapacity(arguments.count)
        for argument in arguments { values.append(value(argument, row, maximumWork: maximumWork)) }
        return applied(function, values, row, maximumWork)
    }

    private static func applied(
        _ function: Function, _ values: [Outcome], _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Outcome {
        var texts: [[UInt8]?] = []
        texts.reserveCapacity(values.count)
        var worst = Truth.yes
        for value in values {
            switch value {
            case .value(let text): texts.append(text)
            case .null:
                texts.append(nil)
                if function.isStrict { worst = worst.and(.unknown) }
            case .failed: worst = worst.and(.failed)
            case .cannot: worst = worst.and(.ask)
            }
        }
        guard worst == .yes else { return Outcome(worst) }
        precondition(texts.count == values.count, "an argument was lost")
        return function.apply(texts, moment: row.moment, maximumWork: maximumWork)
    }

    private static func choice(
        _ branches: [Term.Branch], _ otherwise: Term, _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Outcome {
        for branch in branches {
            switch truth(branch.condition, row, maximumWork: maximumWork) {
            case .yes: return value(branch.value, row, maximumWork: maximumWork)
            case .no, .unknown: break
            case .ask, .notYes, .notNo: return .cannot
            case .failed: return .failed
            }
        }
        return value(otherwise, row, maximumWork: maximumWork)
    }

    private static func coalesce(_ parts: [Term], _ row: borrowing RowImage, _ maximumWork: Int) -> Outcome {
        for part in parts {
            let value = value(part, row, maximumWork: maximumWork)
            if value != .null { return value }
        }
        return .null
    }

    private static func nullIf(
        _ function: Function, _ left: Term, _ right: Term, _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Outcome {
        let a = value(left, row, maximumWork: maximumWork)
        let b = value(right, row, maximumWork: maximumWork)
        if a == .cannot || b == .cannot { return .cannot }
        if a == .failed || b == .failed { return .failed }
        switch applied(function, [a, b], row, maximumWork).truth {
        case .yes: return .null
        case .no, .unknown: return a
        case .failed: return .failed
        case .ask, .notYes, .notNo: return .cannot
        }
    }

    private static func array(_ elements: [Term], _ row: borrowing RowImage, _ maximumWork: Int) -> Outcome {
        // An array of arrays is one array with more dimensions.
        guard !elements.contains(where: { $0.type?.element != nil }) else { return .cannot }
        var texts: [[UInt8]?] = []
        var worst = Truth.yes
        for element in elements {
            switch value(element, row, maximumWork: maximumWork) {
            case .value(let text): texts.append(text)
            case .null: texts.append(nil)
            case .failed: worst = worst.and(.failed)
            case .cannot: worst = worst.and(.ask)
            }
        }
        assert(worst != .yes || texts.count == elements.count, "an element was lost")
        return worst == .yes ? .value(ArrayText.text(texts)) : Outcome(worst)
    }

    private static func element(
        _ array: Term, _ index: Term, _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Outcome {
        // A value with a subscript need not be an array.
        guard array.type?.element != nil else { return .cannot }
        let whole = value(array, row, maximumWork: maximumWork)
        let place = value(index, row, maximumWork: maximumWork)
        if whole == .cannot || place == .cannot { return .cannot }
        if whole == .failed || place == .failed { return .failed }
        guard case .value(let text) = whole, case .value(let number) = place else { return .null }
        // SAFETY: any byte is a valid UInt8, and the spans live as long as the bytes.
        guard let shape = ArrayText.shape(unsafe text.span.bytes), let elements = ArrayText.elements(text),
            let number = IntegerText.value(unsafe number.span.bytes)
        else { return .cannot }
        // In an array with several dimensions, a single index refers to no element.
        guard shape.dimensions == 1 else { return .null }
        assert(shape.count == elements.count, "an array that holds more than its shape says")
        let (offset, overflow) = number.subtractingReportingOverflow(shape.lowerBounds[0])
        guard !overflow, offset >= 0, offset < Int64(elements.count) else { return .null }
        return elements[Int(offset)].map { .value($0) } ?? .null
    }
}

// MARK: Fields of claims

extension TermEvaluation {
    /// Returns a field of a text that is cast to JSON. It finds the field in the text directly, without converting the
    /// whole text to `jsonb`. Nil if the term has another form, or if the result is not certain.
    private static func field(
        _ function: Function, _ arguments: [Term], _ row: borrowing RowImage, _ maximumWork: Int
    ) -> Outcome? {
        guard case .field(let address, let asText, let isBinary) = function.operation, asText, arguments.count == 2,
            case .apply(let inner, _) = arguments[0], inner.yieldsJSON
        else { return nil }
        guard case .value(let key) = value(arguments[1], row, maximumWork: maximumWork) else { return nil }
        switch json(arguments[0], row, maximumWork) {
        case .null: return .null
        case .value(let text):
            // SAFETY: any byte is a valid UInt8, and the span lives as long as the bytes.
            let json = unsafe text.span.bytes
            switch JSONField.piece(json, at: key, address) {
            case .missing: return .null
            case .unclear: return nil
            case .found(let range): return scalar(json.extracting(range), isBinary)
            }
        case .failed, .cannot: return nil
        }
    }

    /// Returns the text of a scalar if it is certain that PostgreSQL would write the same; otherwise nil.
    private static func scalar(_ piece: RawSpan, _ isBinary: Bool) -> Outcome? {
        guard isBinary else { return JSONField.text(piece) }
        let first = piece.byteCount > 0 ? piece.byte(0) : UInt8(ascii: "{")
        let isOther = first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
        return isOther || first == UInt8(ascii: "-") ? nil : JSONField.text(piece)
    }

    /// Returns JSON with the same meaning as the term's value. Its text may differ from the one that `jsonb` has.
    private static func json(_ term: Term, _ row: borrowing RowImage, _ maximumWork: Int) -> Outcome {
        guard case .apply(let function, let arguments) = term, let first = arguments.first else {
            return value(term, row, maximumWork: maximumWork)
        }
        switch function.operation {
        case .parseJSON:
            let text = value(first, row, maximumWork: maximumWork)
            guard case .value(let bytes) = text else { return text }
            return JSONField.isPlain(bytes) ? text : .cannot
        case .field(let address, asText: false, _) where arguments.count == 2:
            guard case .value(let key) = value(arguments[1], row, maximumWork: maximumWork),
                case .value(let text) = json(first, row, maximumWork)
            else { return .cannot }
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            return JSONField.value(unsafe text.span.bytes, at: key, address, asText: false, isBinary: true)
        default: return value(term, row, maximumWork: maximumWork)
        }
    }
}

extension Function {
    fileprivate var yieldsJSON: Bool {
        switch operation {
        case .parseJSON, .field(_, asText: false, _): true
        default: false
        }
    }
}
