"""Shouted shelf labels → text a person would write: "FRZN ICE" → "Frozen ice".

The rules, in order: a whole label in WHOLE is replaced; brackets go; hyphens, colons and dashes between parts become
commas; each word is looked up in WORDS; what is not a NAME is written small; the first letter is large.
Labels were cut at 30 characters by their source, so some last words are stumps: WORDS mends the frequent ones, and
STUMPS go. Judged by eye on the 300 most bought labels of each kind.
"""

from __future__ import annotations

import re

WHOLE = {
    # departments
    "DRUG GM": "Drugstore & general merchandise",
    "GM MERCH EXP": "General merchandise",
    "MEAT-PCKGD": "Packaged meat",
    "SEAFOOD-PCKGD": "Packaged seafood",
    "CNTRL/STORE SUP": "Store supplies",
    "PROD-WHS SALES": "Produce warehouse sales",
    "ELECT &PLUMBING": "Electrical & plumbing",
    "CHEF SHOPPE": "Chef shop",
    # categories
    "CONVENIENT BRKFST/WHLSM SNACKS": "Breakfast bars & wholesome snacks",
    "CRACKERS/MISC BKD FD": "Crackers & baked snacks",
    "FD WRAPS/BAGS/TRSH BG": "Food wraps & trash bags",
    "DRY BN/VEG/POTATO/RICE": "Dry beans, potatoes & rice",
    "SALD DRSNG/SNDWCH SPRD": "Salad dressings & sandwich spreads",
    "WATER - CARBONATED/FLVRD DRINK": "Sparkling & flavored water",
    "FRZN NOVELTIES/WTR ICE": "Frozen novelties & water ice",
    "FRZN VEGETABLE/VEG DSH": "Frozen vegetables & vegetable dishes",
    "BEANS - CANNED GLASS & MW": "Canned beans",
    "FACIAL TISS/DNR NAPKIN": "Facial tissues & dinner napkins",
    "SNKS/CKYS/CRKR/CNDY": "Snacks, cookies, crackers & candy",
    "ICE CREAM/MILK/SHERBTS": "Ice cream & sherbet",
    "MAKEUP AND TREATMENT": "Makeup & skin treatment",
    "FROZEN - BOXED(GROCERY)": "Frozen boxed food",
    "COUPONS/STORE & MFG": "Coupons",
    "HISPANIC": "Hispanic food",
    "PROCESSED": "Processed produce",
    "REFRIGERATED": "Refrigerated food",
    "FROZEN": "Frozen natural food",
    "HEAT/SERVE": "Heat & serve meals",
    "J-HOOKS": "Hanging-rack items",
    "NEW AGE": "New age drinks",
    "NDAIRY/TEAS/JUICE/SOD": "Non-dairy, teas, juice & soda",
    # types
    "SOFT DRINKS 12/18&15PK CAN CAR": "Soft drinks, 12 to 18 cans",
    "SOFT DRINKS 20PK&24PK CAN CARB": "Soft drinks, 20 to 24 cans",
    "SOFT DRINKS 6PK/4PK CAN CARB (": "Soft drinks, 4 to 6 cans",
    "SFT DRNK 2 LITER BTL CARB INCL": "Soft drinks, 2 liter bottles",
    "SFT DRNK SNGL SRV BTL CARB (EX": "Soft drinks, single bottles",
    "SFT DRNK MLT-PK BTL CARB (EXCP": "Soft drinks, bottle packs",
    "SOFT DRINK BOTTLE NON-CARB (EX": "Still soft drinks, bottles",
    "FLUID MILK WHITE ONLY": "White milk",
    "YOGURT NOT MULTI-PACKS": "Yogurt, single cups",
    "CANDY BARS (MULTI PACK)": "Candy bars, multi-packs",
    "SS ECONOMY ENTREES/DINNERS ALL": "Economy frozen dinners, single serve",
    "FRZN SS PREMIUM ENTREES/DNRS/N": "Premium frozen dinners, nutritional",
    "FRZN SS PREMIUM ENTREES/DNRS/T": "Premium frozen dinners, traditional",
    "FRZN MULTI SERVE ENTREES ALL": "Frozen family entrees",
    "BEERALEMALT LIQUORS": "Beer, ale & malt liquor",
    "DAIRY CASE 100% PURE JUICE - O": "Chilled orange juice",
    "DAIRY CASE JUICE DRNK UNDER 10": "Chilled juice drinks, small",
    "DAIRY CASE FRUIT DRINKS (NO JU": "Chilled fruit drinks",
    "MAINSTREAM WHEAT/MULTIGRAIN BR": "Wheat & multigrain bread",
    "MAINSTREAM WHITE BREAD": "White bread",
    "RTS SOUP: CHUNKY/HOMESTYLE ET": "Ready-to-serve soup, chunky",
    "FRZN BAGGED VEGETABLES - PLAIN": "Frozen vegetables, plain",
    "FRZN BOXED VEGETABLES- VALUE A": "Frozen vegetables, seasoned",
    "IWS SINGLE CHEESE": "Cheese slices, individually wrapped",
    "NON-CRBNTD DRNKING/MNERAL WATE": "Still drinking & mineral water",
    "NON-CARB FLVRD DRNKNG/MNRL WAT": "Still flavored water",
    "SGL SV/VEND MACH SNACKS CHIP/P": "Single-serve chips & snacks",
    "BEANS GREEN: FS/WHL/CUT": "Green beans",
    "SW GDS:DONUTS": "Donuts",
    "SEMI-SOLID SALAD DRESSING MAY": "Mayonnaise & salad dressing",
    "VARIETY BEANS - KIDNEY PINTO": "Kidney, pinto & other beans",
    "MEXICAN SAUCESSALSAPICANTEE": "Mexican sauces & salsa",
    "PLSTC CTLRYTBLCLTHSTTHPKSST": "Plastic cutlery & tableware",
    "CAN CATFD GOURMET/SUP PREM (GR": "Canned cat food, gourmet",
    "CANNED CAT FOOD (9 LIVES/FRISK": "Canned cat food",
    "CAN DOG FOOD (SKIPPY/PEDIGREE/": "Canned dog food",
    "DRY CAT FOOD (CAT CHOW/FRISKIE": "Dry cat food",
    "CHEESE CRACKERS (CHEEZ-ITS/GOL": "Cheese crackers",
    "BUTTER SPRAY CRACKER (RITZ/CLU": "Butter crackers",
    "SOUP CRACKERS (SALTINE/OYSTER)": "Soup crackers, saltine & oyster",
    "GARBAGE KITCHEN COMPACTOR BA": "Kitchen garbage bags",
    "FACIAL TISSUE & PAPER HANDKE": "Facial tissue & handkerchiefs",
    "MINTS CANDY & BREATH (NOT LIF": "Breath mints & candy mints",
    "MALTED MLK/SYRUP/PWDRS (EGGNOG": "Malted milk, syrup & powders",
    "CROUTONS SALAD TOPPERS BREAD": "Croutons & salad toppers",
    "REFRIGERATED COOKIES-CHUB": "Refrigerated cookie dough",
    "VAC PAC NUTS(CANS)": "Canned nuts",
    "NATURAL CHEESE EXACT WT CHUNKS": "Natural cheese, chunks",
    "NATURAL CHEESE EXACT WT SLICES": "Natural cheese, slices",
    "CHICKEN BREAST BONE IN": "Chicken breast, bone-in",
    "PREPARED BEANS - BAKED W/PORK": "Baked beans",
    "FRZN BREAKFAST ENTREES/SANDWIC": "Frozen breakfast sandwiches",
    "MEXICAN SOFT TORTILLAS AND WRA": "Soft tortillas & wraps",
    "FRZN BRD STICK/PORTON": "Frozen breaded fish sticks",
    "GASOLINE-REG UNLEADED": "Gasoline, regular unleaded",
    "FEM. HYGN.NAPKINS": "Feminine napkins",
    "TOMATOES: STEWED/DICED/CRMD": "Canned tomatoes",
    "DIPS (NON-REFRIGERATED)": "Dips, not refrigerated",
    "STICKS/ENROBED": "Ice cream sticks",
    "SOLID/STK DEODORANTS": "Solid & stick deodorants",
    "VEG JUICE (EXCEPT TOMATO) (OVE": "Vegetable juice",
    "VEG JUICE (EXCEPT TOMATO) (50%": "Vegetable juice",
    "SAL:SALSA/DPS-PRPCK": "Salsa & dips, pre-packed",
    "SW GDS: SW ROLLS/DAN": "Sweet rolls & danish",
    "DAIRY CASE TEA WITH SUGAR OR S": "Chilled sweetened tea",
    "DRY BEANS/PEAS/BARLEY: BAG & B": "Dry beans, peas & barley",
    "MANDARIN ORANGES/CITRUS SECT": "Mandarin oranges & citrus sections",
    "SEAFOOD-FRZ-IQF RAW SHRIMP RW": "Frozen raw shrimp",
    "SAUCE MIXES GRAVY MIXES DRY": "Dry sauce & gravy mixes",
    "BABY FOOD JUNIOR ALL BRANDS": "Baby food, junior",
    "ORANGES NAVELS ALL": "Navel oranges",
    "PRESERVES JAM MARMALADE": "Jam, preserves & marmalade",
    "PEPPERS-ALL": "Peppers",
    "VEGETABLES - ALL OTHERS": "Other vegetables",
    "VEGETABLES ALL OTHER": "Other vegetables",
    "VEGETABLES SALAD": "Salad vegetables",
    "PKG.SEAFOOD MISC": "Other packaged seafood",
    "MILK BY-PRODUCTS": "Cream, sour cream & cottage cheese",
}

# Labels that name no interest: they say how something is stocked or paid, or nothing at all.
EMPTY = {
    "MISCELLANEOUS",
    "NO DEPARTMENT DESC",
    "NO COMMODITY DESCRIPTION",
    "NO SUBCOMMODITY DESCRIPTION",
    "COUPON/MISC ITEMS",
    "COUPON",
    "COUPONS/STORE & MFG",
    "UNKNOWN",
    "CONTINUITIES",
    "BOTTLE DEPOSITS",
    "DOLLAR VALUE PRODUCTS",
    "DONATIONS",
    "CNTRL/STORE SUP",
    "PROD SUPPLIES",
    "MEAT SUPPLIES",
    "DELI SUPPLIES",
    "GM MERCH EXP",
}

# Types that say nothing without their category: "PREMIUM" of ice cream is not "PREMIUM" of pizza.
QUALIFIERS = {
    "PREMIUM",
    "PRIMAL",
    "LEAN",
    "MAINSTREAM",
    "ENHANCED",
    "TRADITIONAL",
    "ECONOMY",
    "BLENDS",
    "REGULAR GARDEN",
}
QUALIFIERS |= {"GARDEN PLUS", "FRESH", "VALUE", "BETTER FOR YOU", "PATTIES", "PREMIUM - MEAT", "ECONOMY - MEAT", "BULK"}
QUALIFIERS |= {
    "PREMIUM PINTS",
    "SUPER PREMIUM PINTS",
    "LINKS - RAW",
    "ROLLS - PORK",
    "SMOKED/COOKED",
    "ANGUS",
    "NATURAL",
}
QUALIFIERS |= {
    "ORGANIC",
    "SELECT",
    "CHOICE",
    "BOXED",
    "SEASONED",
    "SPECIALTY",
    "REGULAR",
    "GRINDS",
    "THIGHS",
    "DRUMS",
    "WINGS",
}
QUALIFIERS |= {
    "BREAST - BONELESS",
    "BREAST - BONELESS(IQF)",
    "BREAST - BONE-IN",
    "WINGS (IQF)",
    "DRUMS (IQF)",
    "THIGHS (IQF)",
}

_ABBREVIATIONS = """
FRZN=frozen FRZ=frozen REFRGRATD=refrigerated REFRIG=refrigerated REFIGERATED=refrigerated PCKGD=packaged
PKGD=packaged PKG=package DRNK=drink DRNKS=drinks DRNKNG=drinking DRNKING=drinking SFT=soft BTL=bottle BTLS=bottles
CARB=carbonated CRBNTD=carbonated VEG=vegetables BKD=baked FD=food FDS=foods FLVRD=flavored FLVR=flavor FLAV=flavored
SS=single_serve DNRS=dinners DNR=dinner MISC=miscellaneous MISC.=miscellaneous PK=pack PKS=packs MXS=mixes MIXS=mixes
MX=mix SHERBTS=sherbet BRKFST=breakfast WHLSM=wholesome DSH=dishes BN=beans SALD=salad DRSNG=dressing SNDWCH=sandwich
SPRD=spread WTR=water PNT=peanut PNUT=peanut BTR=butter PWDR=powdered PWDRS=powders CRYSTL=crystal TRSH=trash BG=bags
SPLY=supplies SPLYS=supplies MW=microwave SWEETNERS=sweeteners CLEANG=cleaning SUPPPLIES=supplies
DISPOSIBLE=disposable MEMORABLILIA=memorabilia PKLD=pickled PICKLD=pickled TISS=tissues JCE=juice CONC=concentrate
HBC=care SW=sweet GDS=goods SAUS=sausage CHIX=chicken CHICK=chicken PREP=prepared CHOC=chocolate CHOCOCLATE=chocolate
CHOCOL=chocolate CHOCOLA=chocolate SPECILATY=specialty INSTORE=in-store STK=steak CHP=chop SLC=slice GRND=ground
PTTY=patty WHL=whole CND=canned BRD=breaded FRE=fresh FRSH=fresh SNGL=single SGL=single SRV=serve SV=service MLT=multi
DOGFD=dog_food CATFD=cat_food LIQ=liquid LIQS=liquids SHLDR=shoulder BRSKT=brisket BRST=breast BLY=belly FLNK=flank
PLT=plate SHNK=shank STW=stew STRP=strip CUBE=cube TORT=tortilla SUP=super PREM=premium EXCPT=except VAC=vacuum
PAC=pack HYGN.=hygiene HYGN=hygiene FEM.=feminine ORAL=oral SUPP=supplements OTC=over-the-counter SYRP=syrup
LOZNG=lozenges DRP=drops XPCTRNT=expectorant PREPORTND=pre-portioned PRPCK=pre-packed FRD=fried PNCH=punch
LOAVE=loaves SNKS=snacks CKYS=cookies CRKR=crackers CNDY=candy MNERAL=mineral MNRL=mineral WAT=water WATE=water
APPL=appliances PERSNL=personal SEAFD=seafood SWT=sweet BRKF=breakfast TBL=table HH=hand-held JHOOK=hanging-rack
COFF=coffee BEV=beverages INDR=indoor PLANTR=planter SNSL=seasonal CNTRL=control AUTHENTIC=authentic MLK=milk
MENS=men's WOMENS=women's CHILDRENS=children's LADIES=ladies' BOYS=boys' GIRLS=girls' KIDS=kids' POINSETTA=poinsettia
MAGAZINE=magazines PROD=produce XTRA=extra LRG=large SM=small ASST=assorted RTD=ready-to-drink RTS=ready-to-serve
MFG=manufacturer ELECT=electrical MERCH=merchandise REG=regular WORCHESTER=Worcestershire CATSUP=ketchup
PROTIEN=protein DECAFFINATED=decaffeinated DEOD=deodorant WRA=wraps BR=bread BA=bags HANDKE=handkerchiefs
PORTON=portions SANDWIC=sandwiches SWE=sweetened SWEE=sweetened SWEETEN=sweetened JUI=juice JUIC=juice BTH=bath
MASSGRS=massagers FT=foot ACCESS=accessories ANK=ankle BRAC=bracelets AND=& QSR=quick-service EW=extra-weight
IQF=individually_frozen PPK=pre-packed WINDSHIELD=windshield CONTAINR=container CTLRY=cutlery MARIN=marinades
MARINAD=marinades CKE=cake VEGETABLE=vegetable YNG=young FLOURSCENT=fluorescent SOULABLE=soluble
TRADITIONA=traditional HALLOWEN=Halloween COUER=Coeur PHYSICANS=physicians SUADE=suede
"""
WORDS = dict(pair.split("=") for pair in _ABBREVIATIONS.split())

PHRASES = {
    r"\bDAIRY CASE\b": "CHILLED",
    r"\bNUT SUPP\b": "NUTRITIONAL SUPPLEMENTS",
    r"-MAGAZINE$": " MAGAZINE",
    r"\b(WOMEN|MEN|CHILDREN) S\b": r"\1S",
    r"\bRW\b": "",  # random weight
    r"\bW/": "WITH ",
    r"\b(\d+)PC\b": r"\1-PIECE",
}

STUMPS = {
    "N",
    "T",
    "O",
    "P",
    "EX",
    "ET",
    "GR",
    "JU",
    "GOL",
    "CLU",
    "OV",
    "OVE",
    "UN",
    "LIF",
    "BLUBLKRASP",
    "INCL",
    "INCLUDI",
}
STUMPS |= {
    "CAR",
    "EXCE",
    "EXCP",
    "OTHE",
    "OTH",
    "SA",
    "SAL",
    "MNR",
    "RIC",
    "DPS",
    "PSE",
    "DXM",
    "INCLUDING",
    "ALL",
    "FS",
}

_PROPER = """
Italian French Mexican Hispanic Asian Oriental German British Polish Caribbean Spanish Australian American English
Vienna Christmas Easter Halloween Valentine Angus Kosher Levi Hanes Kodak Barbie Nerf Maybelline Covergirl Revlon Coty
Fuji Roma Anjou Bartlett Worcestershire Alpo Graham Granny Smith BBQ TV DVD CD OJ
"""
NAMES = {**{name.upper(): name for name in _PROPER.split()}, "DVDS": "DVDs"}

_HYPHENATED = "NON MULTI MLT X J IN SEMI BONE PRE ANTI SELF RIDE ROLL READY TO BI T BY"
_KEEP_HYPHEN = frozenset(_HYPHENATED.split())


def readable(label: str | None) -> str | None:
    """A label as text; None where it says nothing."""
    if label is None or label.strip() in EMPTY or not label.strip():
        return None
    label = label.strip()
    if label in WHOLE:
        return WHOLE[label]
    text = re.sub(r"\([^)]*\)?", " ", label)  # brackets hold brands and exceptions, often cut
    for phrase, said in PHRASES.items():
        text = re.sub(phrase, said, text)
    text = re.sub(r"\s*&\s*", " & ", text)
    text = re.sub(r"\s*[:,]\s*|\s+-\s*|\s*-\s+", ", ", text)
    text = re.sub(r"(\w+)-(?=\w)", lambda found: f"{found[1]}-" if found[1] in _KEEP_HYPHEN else f"{found[1]}, ", text)
    text = _without_stump(text) if len(label) >= 30 or "(" in label else text
    text = re.sub(r"[A-Z][A-Z.']*", lambda found: _word(found[0]), text)
    text = re.sub(r"\s+", " ", text.replace("_", " ")).strip(" ,&/-")
    text = re.sub(r"^miscellaneous ", "other ", text)
    return text[:1].upper() + text[1:] if text else None


def _without_stump(text: str) -> str:
    """The label without its last word where that was cut off."""
    head, _, last = re.sub(r"[\s,]+$", "", text).rpartition(" ")
    stem = re.split(r"[/-]", last)
    if stem[-1] not in STUMPS:
        return text
    return f"{head} {'/'.join(stem[:-1])}" if len(stem) > 1 else head or last


def _word(word: str) -> str:
    return WORDS.get(word) or NAMES.get(word) or WORDS.get(word.rstrip(".")) or word.rstrip(".").lower()
