import Policy
import Postgres

/// Query that PostgreSQL runs under many claims of one role, one after the other: as a function that loops over the
/// claims, or, where no function can be created, as one statement for each.
///
/// Each step sets the claims and the role again. Each step is a subtransaction that is rolled back, so that effects of
/// a policy's functions do not reach the next step.
public struct ClaimsScript: Sendable, Hashable {
    public enum Shape: Sendable, Hashable {
        /// One row for each set of claims. If the query fails and the inputs have several elements, each element is
        /// tried separately.
        case whole
        /// Any number of rows for each set of claims.
        case rows
    }

    /// Role of the query; nil keeps the connection's role.
    public let role: String?
    public let shape: Shape
    /// Number of inputs, each an array of texts.
    public let inputCount: Int
    /// Number of outputs, each a text.
    public let outputCount: Int
    /// SQL expression for the rows that are made of the inputs once and are the same under all claims; nil for queries
    /// without rows.
    private let rows: String?
    /// SQL expression for one of the rows.
    private let rowByElement: String?
    /// SQL of the query with the inputs as the function's variables.
    private let inFunction: String
    /// SQL of the query with the inputs as parameters of a statement.
    public let asStatement: String
    /// SQL that makes the rows of the inputs as parameters of a statement, and does no more; nil for queries without
    /// rows.
    public let makingStatement: String?

    /// SQLSTATE of rows that cannot be made of their texts, because the table's type is another by now. This says
    /// nothing about who may read them. PostgreSQL does not use the class.
    public static let unmade = "TWROW"

    private init(
        as role: String?, _ shape: Shape, outputs: Int, of row: JudgedRow? = nil, _ sql: (_ rows: String) -> String
    ) {
        self.role = role
        self.shape = shape
        inputCount = row?.columns.count ?? 0
        outputCount = outputs
        rows = row?.array(ClaimsScript.variable)
        rowByElement = row?.array { "\(ClaimsScript.variable($0))[\"tw$element\":\"tw$element\"]" }
        inFunction = sql("\"tw$held\".\"tw$made\"")
        let parameters = row?.array { "CAST($\($0 + 1) AS pg_catalog.text[])" }
        asStatement = sql(parameters ?? "")
        makingStatement = parameters.map { "SELECT pg_catalog.cardinality(\($0))" }
    }

    private static func variable(_ input: Int) -> String { "\"tw$input\(input)\"" }

    public static func == (left: ClaimsScript, right: ClaimsScript) -> Bool {
        left.role == right.role && left.shape == right.shape && left.asStatement == right.asStatement
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(role)
        hasher.combine(asStatement)
    }
}

// MARK: Queries

extension ClaimsScript {
    /// Creates the query whether each row may be read. The answer has one digit a row, in order: `1` or `0`, without
    /// trailing zeros; NULL if no row may be read.
    ///
    /// The rows are made of their texts once for all claims.
    init(judging sql: String, _ row: JudgedRow, as role: String) {
        self.init(as: role, .whole, outputs: 1, of: row) { rows in
            """
            SELECT NULLIF(pg_catalog.rtrim(pg_catalog.string_agg("tw$may", ''), '0'), '')
            FROM (SELECT CASE WHEN (\(sql)
            ) THEN '1' ELSE '0' END FROM \(row.source(rows))) AS "tw$rows" ("tw$may")
            """
        }
    }

    /// Creates the query for the texts of terms.
    public init(evaluating terms: [AskedTerm], as role: String) {
        self.init(as: role, .whole, outputs: terms.count) { _ in
            "SELECT " + terms.map(ClaimsScript.text).joined(separator: ", ")
        }
    }

    /// Returns SQL for the term's text. Timestamps are written in UTC as in the replication stream, because the session
    /// has the client's time zone.
    private static func text(_ term: AskedTerm) -> String {
        guard term.type.oid == momentType else { return "CAST((\(term.sql)\n) AS pg_catalog.text)" }
        return """
            (SELECT CASE WHEN NOT pg_catalog.isfinite("tw$moment") THEN CAST("tw$moment" AS pg_catalog.text)
                ELSE pg_catalog.regexp_replace(
                    CAST(pg_catalog.timezone('UTC', "tw$moment") AS pg_catalog.text), '( BC)?$', '+00\\1') END
            FROM (SELECT CAST((\(term.sql)
            ) AS timestamp with time zone)) AS "tw$source" ("tw$moment"))
            """
    }

    /// Oid of `timestamptz`.
    private static let momentType: UInt32 = 1184

    /// Creates the query for membership keys and their numbers of occurrences.
    public init(filling sql: String, as role: String?, limit: Int) {
        self.init(as: role, .rows, outputs: 2) { _ in
            """
            SELECT "tw$key", CAST(pg_catalog.count(*) AS pg_catalog.text) FROM (
                SELECT CAST("tw$of" AS pg_catalog.text) COLLATE pg_catalog."C" FROM (\(sql)
                ) AS "tw$source" ("tw$of")) AS "tw$keys" ("tw$key")
            GROUP BY "tw$key" LIMIT \(limit)
            """
        }
    }
}

// MARK: The function

extension ClaimsScript {
    /// Returns the SQL that creates the function. Its rows contain the claims' number from 1, the element's number if
    /// elements were tried separately, the error code or NULL, and the outputs.
    public func function(named name: String) -> String {
        let inputs = (0..<inputCount).map { ", \(ClaimsScript.variable($0)) pg_catalog.text[]" }.joined()
        let outputs = (0..<outputCount).map { ", \"tw$output\($0)\" pg_catalog.text" }.joined()
        let body = """
            #variable_conflict use_column
            DECLARE
                "tw$one" pg_catalog.text;
                "tw$done" pg_catalog.bool;
                "tw$any" pg_catalog.bool;
                "tw$held" record;
                "tw$isHeld" pg_catalog.bool := false;
                "tw$isMaking" pg_catalog.bool := false;
            BEGIN
                "tw$who" := 0;
                FOREACH "tw$one" IN ARRAY "tw$claims" LOOP
                    "tw$who" := "tw$who" + 1;
                    "tw$element" := NULL;
            \(step(after: making))
            \(stepsByElement)
                END LOOP;
            END
            """
        let quote = ClaimsScript.dollarQuote(notIn: body)
        return """
            CREATE FUNCTION pg_temp.\(name)("tw$claims" pg_catalog.text[]\(inputs))
            RETURNS TABLE ("tw$who" pg_catalog.int4, "tw$element" pg_catalog.int4, "tw$error" pg_catalog.text\(outputs))
            LANGUAGE plpgsql AS \(quote)\(body)\(quote)
            """
    }

    /// SQL that tries each element separately after a failure. If the first few all fail, the claims are the cause, and
    /// a row with element 0 reports the failure for all elements.
    private var stepsByElement: String {
        guard let rowByElement, inputCount > 0 else { return "" }
        return """
            IF "tw$error" IS NOT NULL AND pg_catalog.cardinality(\(ClaimsScript.variable(0))) > 1 THEN
                "tw$any" := false;
                FOR "tw$index" IN 1 .. pg_catalog.cardinality(\(ClaimsScript.variable(0))) LOOP
                    "tw$element" := "tw$index";
            \(step(after: ClaimsScript.making(rowByElement)))
                    "tw$any" := "tw$any" OR "tw$done";
                    IF NOT "tw$any" AND "tw$index" >= \(ClaimsScript.elementsTried) THEN
                        "tw$element" := 0;
                        RETURN NEXT;
                        EXIT;
                    END IF;
                END LOOP;
                "tw$isHeld" := false;
            END IF;
            """
    }

    private static let elementsTried = 8

    /// SQL that makes the rows in the first step where that succeeds. It runs under a client's role, and the rows
    /// survive the rollback.
    private var making: String {
        guard let rows else { return "" }
        return """
            IF NOT "tw$isHeld" THEN
            \(ClaimsScript.making(rows))
                "tw$isHeld" := true;
            END IF;
            """
    }

    private static func making(_ rows: String) -> String {
        """
        "tw$isMaking" := true;
        SELECT \(rows) AS "tw$made" INTO "tw$held";
        "tw$isMaking" := false;
        """
    }

    /// Returns SQL for one subtransaction that is always rolled back. It ends with an exception even after success.
    private func step(after first: String) -> String {
        let outputs = (0..<outputCount).map { "\"tw$output\($0)\"" }.joined(separator: ", ")
        let none = (0..<outputCount).map { "\"tw$output\($0)\" := NULL; " }.joined()
        let ask =
            switch shape {
            case .whole: "SELECT * INTO \(outputs) FROM (\(inFunction)\n) AS \"tw$answer\";"
            case .rows: "FOR \(outputs) IN \(inFunction) LOOP RETURN NEXT; END LOOP;"
            }
        return """
            "tw$done" := false;
            "tw$error" := NULL;
            \(none)
            BEGIN
                \(claimsAndRole)
                \(first)
                \(ask)
                "tw$done" := true;
                RAISE EXCEPTION USING ERRCODE = '\(ClaimsScript.undo)';
            EXCEPTION WHEN OTHERS OR assert_failure THEN
                IF NOT "tw$done" THEN
                    "tw$error" := CASE WHEN "tw$isMaking" THEN '\(ClaimsScript.unmade)' ELSE SQLSTATE END;
                    "tw$isMaking" := false;
                    \(none)
                END IF;
            END;
            \(isReturned)
            """
    }

    private var isReturned: String {
        let outputs = (0..<outputCount).map { ", \"tw$output\($0)\"" }.joined()
        return switch shape {
        // A row of NULLs only would say nothing.
        case .whole:
            """
            IF pg_catalog.num_nonnulls("tw$error"\(outputs)) > 0 THEN
                RETURN NEXT;
            END IF;
            """
        case .rows:
            """
            IF "tw$error" IS NOT NULL THEN
                RETURN NEXT;
            END IF;
            """
        }
    }

    private var claimsAndRole: String {
        let role = self.role.map { ", pg_catalog.set_config('role', \(Quoted.literal($0)), true)" } ?? ""
        return "PERFORM pg_catalog.set_config('request.jwt.claims', \"tw$one\", true)\(role);"
    }

    /// SQLSTATE of a class that PostgreSQL does not use.
    private static let undo = "TWUND"

    private static func dollarQuote(notIn text: String) -> String {
        var number = 0
        while text.contains("$tidewire\(number)$") { number += 1 }
        return "$tidewire\(number)$"
    }
}
